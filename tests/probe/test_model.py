"""Models: folders, the hub cache, the shipped table, and everything that is none of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from wizard.probe.model import read_model
from wizard.problem import ProblemError

CONFIG = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 10,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
TENSORS = {"model.embed_tokens.weight": (10, 8), "model.layers.0.mlp.weight": (16, 8)}


def write_weights(
    path: Path, shapes: Mapping[str, Sequence[int]], *, missing_bytes: int = 0
) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end - missing_bytes))


def folder(path: Path, config: Mapping[str, Any] = CONFIG, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    write_weights(path / "model.safetensors", TENSORS)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def refusal(name: object) -> str:
    with pytest.raises(ProblemError) as caught:
        read_model(str(name))
    return str(caught.value)


def test_parameters_are_counted_from_the_headers(tmp_path: Path) -> None:
    model = read_model(str(folder(tmp_path / "m")))
    assert model.parameters == 80 + 128
    assert model.embedding_parameters == 80
    assert (model.architecture, model.head_dim, model.num_kv_heads) == ("llama", 2, 2)
    assert model.path == str(tmp_path / "m")


def test_a_tied_head_that_is_stored_as_well_is_counted_once(tmp_path: Path) -> None:
    made = folder(tmp_path / "m")
    write_weights(made / "model.safetensors", {**TENSORS, "lm_head.weight": (10, 8)})
    assert read_model(str(made)).parameters == 80 + 128


def test_an_untied_head_counts(tmp_path: Path) -> None:
    made = folder(tmp_path / "m", {**CONFIG, "tie_word_embeddings": False})
    write_weights(made / "model.safetensors", {**TENSORS, "lm_head.weight": (10, 8)})
    assert read_model(str(made)).parameters == 80 + 128 + 80


def test_shards_are_added_up(tmp_path: Path) -> None:
    made = folder(tmp_path / "m")
    (made / "model.safetensors").unlink()
    names = {}
    for number, (name, shape) in enumerate(TENSORS.items()):
        names[name] = f"model-{number}.safetensors"
        write_weights(made / names[name], {name: shape})
    (made / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert read_model(str(made)).parameters == 208
    (made / "model-1.safetensors").unlink()
    assert "1 of 2 weight files missing" in refusal(made)


def test_the_dimensions_of_a_multimodal_model_are_those_of_its_text(tmp_path: Path) -> None:
    made = folder(tmp_path / "m", {"model_type": "outer", "text_config": CONFIG})
    assert read_model(str(made)).hidden_size == 8


def test_licence_and_chat_template_are_found(tmp_path: Path) -> None:
    made = folder(
        tmp_path / "m",
        README__md="---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\nlicense: other\n",
        chat_template__jinja="{{ messages }}",
    )
    model = read_model(str(made))
    assert (model.licence, model.has_chat_template) == ("apache-2.0", True)


def test_a_template_inside_the_tokenizer_settings_counts(tmp_path: Path) -> None:
    made = folder(tmp_path / "m", tokenizer_config__json='{"chat_template": "{{ messages }}"}')
    assert read_model(str(made)).has_chat_template is True


def test_a_model_without_template_and_card_says_so(tmp_path: Path) -> None:
    model = read_model(str(folder(tmp_path / "m")))
    assert (model.licence, model.has_chat_template) == (None, False)


def test_a_quantised_checkpoint_names_its_method(tmp_path: Path) -> None:
    made = folder(tmp_path / "m", {**CONFIG, "quantization_config": {"quant_method": "gptq"}})
    assert read_model(str(made)).quantized == "gptq"


def test_a_missing_folder_names_the_nearest_one(tmp_path: Path) -> None:
    folder(tmp_path / "qwen-small")
    text = refusal(tmp_path / "qwen-smal")
    assert "no such folder" in text
    assert "qwen-small" in text


def test_weights_cut_short_are_refused(tmp_path: Path) -> None:
    made = folder(tmp_path / "m")
    write_weights(made / "model.safetensors", TENSORS, missing_bytes=3)
    assert "3 bytes missing" in refusal(made)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    made = folder(tmp_path / "m", pytorch_model__bin="x")
    (made / "model.safetensors").unlink()
    assert "only pytorch_model.bin, which can run code" in refusal(made)


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, "no config.json in this folder"),
        ({"config__json": "{"}, "cannot be read"),
        ({"config__json": "[]"}, "not a model's configuration"),
        ({"adapter_config__json": "{}"}, "this is an adapter"),
        ({"weights__gguf": ""}, "GGUF files cannot be trained"),
        ({"config__json": "{}"}, "no weights in safetensors format"),
        ({"config__json": "{}", "model__safetensors": "tiny"}, "not a safetensors file"),
        ({"config__json": "{}", "model__safetensors": "\x04\0\0\0\0\0\0\0nope"}, "is not JSON"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_with_its_reason(
    tmp_path: Path, files: Mapping[str, str], what: str
) -> None:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    assert what in refusal(tmp_path)


def test_a_hub_id_is_looked_up_in_the_shipped_table_in_any_case() -> None:
    model = read_model("qwen/qwen3-8b")
    assert (model.name, model.path, model.source) == ("Qwen/Qwen3-8B", None, "shipped table")
    assert model.parameters == 8_190_735_360


def test_a_hub_id_in_the_local_cache_is_read_from_there(own_home: Path) -> None:
    snapshot = own_home / "hub" / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    folder(snapshot)
    model = read_model("Qwen/Qwen3-8B")
    assert (model.name, model.path, model.parameters) == ("Qwen/Qwen3-8B", str(snapshot), 208)


def test_an_unknown_hub_id_says_what_to_do() -> None:
    assert "hf download nobody/nothing" in refusal("nobody/nothing")
    assert "did you mean Qwen/Qwen3-8B?" in refusal("Qwen/Qwen3-8b-")


@pytest.mark.parametrize("name", ["", "  ", "/nowhere/at/all", "just-a-word", "a/b/c"])
def test_what_is_neither_folder_nor_id_is_refused(name: str) -> None:
    assert refusal(name)


def test_a_path_is_taken_exactly_as_it_is_given(tmp_path: Path) -> None:
    for name in ("m ", "m\n", " m"):
        assert read_model(str(folder(tmp_path / name))).path == str(tmp_path / name)
    assert "no such folder" in refusal(str(tmp_path / "m"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"hidden_size": True}, "`hidden_size` is true"),
        ({"hidden_size": "8"}, '`hidden_size` is "8"'),
        ({"num_hidden_layers": 2.5}, "`num_hidden_layers` is 2.5"),
        ({"vocab_size": -1}, "`vocab_size` is -1"),
        ({"model_type": ["llama"]}, '`model_type` is ["llama"]'),
        ({"dtype": 16}, "`dtype` is 16"),
        ({"tie_word_embeddings": "yes"}, '`tie_word_embeddings` is "yes"'),
        ({"text_config": 3}, "`text_config` is not a table"),
        ({"text_config": {"hidden_size": True}}, "`hidden_size` is true"),
    ],
)
def test_a_value_that_no_configuration_means_is_named(
    tmp_path: Path, changes: Mapping[str, Any], what: str
) -> None:
    assert what in refusal(folder(tmp_path / "m", {**CONFIG, **changes}))


def test_a_value_for_each_layer_is_unknown(tmp_path: Path) -> None:
    model = read_model(str(folder(tmp_path / "m", {**CONFIG, "intermediate_size": [16, 32]})))
    assert (model.intermediate_size, model.hidden_size) == (None, 8)


DEEP = "[" * 200_000


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
def test_json_without_end_of_depth_is_refused(tmp_path: Path, file: str) -> None:
    made = folder(tmp_path / "m")
    (made / file).write_text(DEEP)
    assert file in refusal(made)


def test_json_without_end_of_depth_in_side_files_is_refused_or_unknown(tmp_path: Path) -> None:
    made = folder(tmp_path / "m", tokenizer_config__json=DEEP)
    assert read_model(str(made)).has_chat_template is False
    header = DEEP.encode()
    (made / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "its header is not JSON" in refusal(made)


@pytest.mark.parametrize(
    "index",
    [
        [],
        {},
        {"weight_map": []},
        {"weight_map": {}},
        {"weight_map": {"a": 3}},
        {"weight_map": {"a": None, "b": "model.safetensors"}},
        {"weight_map": {"a": ["model.safetensors"]}},
        {"weight_map": {"a": "x" * 300}},
    ],
)
def test_an_index_that_names_no_files_is_refused(tmp_path: Path, index: object) -> None:
    made = folder(tmp_path / "m")
    (made / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "not a weights index" in refusal(made)


@pytest.mark.parametrize(
    "tensor",
    [
        3,
        {},
        {"shape": [-1, 8], "data_offsets": [0, 16]},
        {"shape": [10**30], "data_offsets": [0, 16]},
        {"shape": [10**6, 10**6], "data_offsets": [0, 16]},
        {"shape": ["8"], "data_offsets": [0, 16]},
        {"shape": [True], "data_offsets": [0, 16]},
        {"shape": [8], "data_offsets": [16, 0]},
        {"shape": [8], "data_offsets": [0]},
        {"shape": None, "data_offsets": None},
    ],
)
def test_a_tensor_that_its_file_cannot_hold_is_refused(tmp_path: Path, tensor: object) -> None:
    made = folder(tmp_path / "m")
    header = json.dumps({"w": tensor}).encode()
    (made / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    assert "not a safetensors file" in refusal(made)


@pytest.mark.parametrize(
    "name", ["x" * 300, "/a/" + "x" * 300, "a/" + "x" * 250, "a/" * 3000, "~nosuchuser/x", "a\0b"]
)
def test_a_name_that_no_file_has_is_one_sentence(name: str) -> None:
    assert "\n" not in refusal(name)


def test_the_hint_about_hub_ids_is_a_clause_of_its_own(tmp_path: Path) -> None:
    assert "(check the path; a hub id looks like Qwen/Qwen3-8B)" in refusal(tmp_path / "nothing")
