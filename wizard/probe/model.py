"""A model by folder or hub id: its shape, its exact size, its licence."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.automap import files
from engine.theirs import why
from wizard import paths
from wizard.facts import Model, module_name
from wizard.probe import catalog
from wizard.probe.environment import hub_cache
from wizard.probe.weights import read_weights
from wizard.problem import Problem, ProblemError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
README_LIMIT_CHARS = 64 * 1024
HIDDEN = ("hidden_size", "n_embd", "d_model")
INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_dim")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
HEADS = ("num_attention_heads", "n_head")
POSITIONS = ("max_position_embeddings", "n_positions")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
EXPERT_SIZE, SHARED_SIZE = "moe_intermediate_size", "shared_expert_intermediate_size"
OTHER_COUNTS = (
    "num_key_value_heads", "head_dim", "vocab_size", "num_experts_per_tok", "sliding_window",
    EXPERT_SIZE, SHARED_SIZE,
)  # fmt: skip
COUNTS = (*HIDDEN, *INTERMEDIATE, *LAYERS, *HEADS, *POSITIONS, *EXPERTS, *OTHER_COUNTS)
FULL_EVERY = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2}
"""Architectures whose older configurations leave the kinds of layers to the library."""
WORDS = ("model_type", "dtype", "torch_dtype")
FLAGS = ("tie_word_embeddings",)


def read_model(name: str, *, hub: bool = False) -> Model:
    """Facts of a model: a local folder, a hub id in the local cache, or the shipped table.

    `hub` asks the hub about one that is in none of them.

    Raises ProblemError, saying what to do, when there is no such model or it cannot be used.
    """
    if not name.strip():
        raise _refused("no model is named", "", "give a folder or a hub id such as Qwen/Qwen3-8B")
    folder = paths.expanded(name, "--model")
    if folder.is_dir():
        return _from_folder(name, folder.absolute())
    if folder.is_file():
        raise _refused("a file, not a model folder", name, "give the folder with config.json")
    own = own_folder(name)
    if own is not None:
        return _from_folder(str(own), own)
    if not HUB_ID.fullmatch(name):
        raise _refused("no such folder", name, _near_folder(folder))
    cached = cached_folder(name, os.environ)
    if cached is not None:
        return _from_folder(name, cached)
    if hub and catalog.model(name) is None:
        from wizard.probe.hub import read_hub_model  # which reads a configuration as is done here

        return read_hub_model(name, os.environ)
    return _from_table(name)


def own_folder(name: str) -> Path | None:
    """The folder of a model that this program made or fetched, by its bare name."""
    folder = paths.cache() / "models" / name
    bare = name == folder.name and (folder / "config.json").is_file()
    return folder.absolute() if bare else None


def cached_folder(name: str, environment: Mapping[str, str]) -> Path | None:
    """The newest complete snapshot of a hub id in the local hub cache."""
    repository = hub_cache(environment) / f"models--{name.replace('/', '--')}"
    snapshots = [p for p in repository.glob("snapshots/*") if (p / "config.json").is_file()]
    complete = [p for p in snapshots if any(p.glob("*.safetensors"))]
    return max(complete, key=lambda p: p.stat().st_mtime, default=None)


def _from_folder(name: str, folder: Path) -> Model:
    config = _config(folder)
    text = {**config, **_text_config(folder, config)}
    _check_values(folder, text)
    tied = _tied(config, text)
    quantized = _quantized(config)
    weights = read_weights(folder, tied=tied)
    return Model(
        name=name,
        path=str(folder),
        parameters=None if quantized else weights.parameters,
        tied_embeddings=tied,
        quantized=quantized,
        vision=_vision(config),
        has_chat_template=_has_chat_template(folder),
        modules=_modules(weights.dimensions, 1),
        matrices=_modules(weights.dimensions, 2),
        disk_bytes=weights.file_bytes,
        licence=_licence(folder),
        own_code=files(config),
        source="safetensors headers",
        **_shape(text),
    )


def _modules(tensors: Mapping[str, int], least: int) -> tuple[str, ...]:
    """Modules that have a tensor of so many dimensions, or more.

    None are named where there are experts, which the library joins while it loads them.
    """
    names = {module_name(n.rpartition(".")[0]) for n, size in tensors.items() if size >= least}
    return () if any("expert" in name for name in names) else tuple(sorted(filter(None, names)))


def of_config(name: str, config: Mapping[str, Any], **known: Any) -> Model:
    """A model that is not on this machine, by its configuration; `known` are further facts.

    Raises ProblemError for values that no configuration has.
    """
    text = {**config, **_text_config(Path(name), config)}
    _check_values(Path(name), text)
    quantized = _quantized(config)
    parameters = None if quantized else known.pop("parameters", None)
    return Model(
        name=name,
        path=None,
        parameters=parameters,
        tied_embeddings=_tied(config, text),
        quantized=quantized,
        vision=_vision(config),
        own_code=files(config),
        **{key: value for key, value in known.items() if key != "parameters"},
        **_shape(text),
    )


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise _refused("no config.json in this folder", str(folder), _what_folder(folder))
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise _refused(f"cannot be read: {why(error)}", str(path), "copy the model again") from None
    except RecursionError:
        fix = "copy the model again"
        raise _refused("cannot be read: nested too deeply", str(path), fix) from None
    if not isinstance(config, dict):
        raise _refused("not a model's configuration", str(path), "copy the model again")
    return config


def _text_config(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a multimodal configuration; empty in one of text alone."""
    part = config.get("text_config")
    if part is None:
        return {}
    if not isinstance(part, dict):
        where = str(folder / "config.json")
        raise _refused("`text_config` is not a table", where, "copy the model again")
    return part


def _check_values(folder: Path, text: Mapping[str, Any]) -> None:
    """Refuse what no configuration means; a list, a value per layer, counts as unknown."""
    bad = [name for name in COUNTS if not _may_be_count(text.get(name))]
    bad += [name for name in WORDS if not isinstance(text.get(name), str | None)]
    bad += [name for name in FLAGS if not isinstance(text.get(name), bool | None)]
    if bad:
        raise _refused(
            f"unreadable value, `{bad[0]}` is {json.dumps(text[bad[0]])[:40]}",
            str(folder / "config.json"),
            "copy the model again",
        )


def _may_be_count(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return value is None or isinstance(value, list) or (isinstance(value, int) and value >= 0)


def _what_folder(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return "this is an adapter: give the folder of the model it was trained on"
    if any(folder.glob("*.gguf")):
        return "GGUF files cannot be trained: give the original model with safetensors"
    inside = next((p.parent for p in sorted(folder.glob("*/config.json"))), None)
    return f"did you mean {inside}?" if inside else "give the folder that holds the model's files"


def _shape(text: Mapping[str, Any]) -> dict[str, Any]:
    """The dimensions in config.json, under the names architectures use for them."""
    hidden, heads = _count(text, *HIDDEN), _count(text, *HEADS)
    vocabulary = _count(text, "vocab_size")
    return {
        "architecture": text.get("model_type"),
        "hidden_size": hidden,
        "intermediate_size": _count(text, *INTERMEDIATE),
        "num_layers": _count(text, *LAYERS),
        "num_heads": heads,
        "num_kv_heads": _count(text, "num_key_value_heads") or heads,
        "head_dim": _count(text, "head_dim") or (hidden // heads if hidden and heads else None),
        "vocab_size": vocabulary,
        "embedding_parameters": hidden * vocabulary if hidden and vocabulary else None,
        "max_positions": _count(text, *POSITIONS),
        **_experts(text),
        **windows(text.get("model_type"), _window(text), text.get("layer_types")),
        "dtype": text.get("dtype") or text.get("torch_dtype"),
    }


def _experts(text: Mapping[str, Any]) -> dict[str, int | None]:
    """What a configuration says of routed experts; one without an own width has that of the MLP."""
    experts = _count(text, *EXPERTS)
    if experts is None:
        return {}
    return {
        "experts": experts,
        "experts_per_token": _count(text, "num_experts_per_tok"),
        "expert_size": _count(text, EXPERT_SIZE, *INTERMEDIATE),
        "shared_expert_size": _count(text, SHARED_SIZE),
    }


def _window(text: Mapping[str, Any]) -> int | None:
    """The window that layers really have: Qwen's configurations name one that is switched off."""
    used = text.get("use_sliding_window", not str(text.get("model_type")).startswith("qwen"))
    return _count(text, "sliding_window") if used else None


def windows(architecture: str | None, window: int | None, kinds: object = None) -> dict[str, Any]:
    """The window, and after how many layers one looks at all tokens; `kinds` name each layer's."""
    if window is None:
        return {}
    if not isinstance(kinds, list):
        return {"window": window, "full_every": FULL_EVERY.get(architecture or "")}
    whole = [number for number, kind in enumerate(kinds, 1) if kind == "full_attention"]
    if len(whole) == len(kinds):
        return {}
    return {"window": window, "full_every": whole[0] if whole else None}


def _count(text: Mapping[str, Any], *names: str) -> int | None:
    values = (text.get(name) for name in names)
    return next((v for v in values if isinstance(v, int) and v > 0), None)


def _tied(config: Mapping[str, Any], text: Mapping[str, Any]) -> bool:
    # transformers ties unless told otherwise.
    return bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", True)))


def _quantized(config: Mapping[str, Any]) -> str | None:
    settings = config.get("quantization_config")
    return str(settings.get("quant_method", "unknown")) if isinstance(settings, dict) else None


def _vision(config: Mapping[str, Any]) -> str | None:
    """The kind of the vision tower that a multimodal configuration has beside the text."""
    part = config.get("vision_config")
    return str(part.get("model_type", "unknown")) if isinstance(part, dict) else None


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    try:
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return False
    return isinstance(tokenizer, dict) and bool(tokenizer.get("chat_template"))


def _licence(folder: Path) -> str | None:
    """`license:` of the model card's front matter."""
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as file:
            text = file.read(README_LIMIT_CHARS)
    except OSError:
        return None
    if not text.startswith("---"):
        return None
    front = text[3:].partition("\n---")[0]
    found: dict[str, str] = {}
    for line in front.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key, value.strip().strip("'\""))
    named = found.get("license_name") if found.get("license") == "other" else None
    return named or found.get("license") or None


def _from_table(name: str) -> Model:
    row = catalog.model(name)
    if row is None:
        raise _unknown(name)

    def count(column: str) -> int | None:
        value = catalog.number(row, column)
        return None if value is None else int(value)

    experts, inside = count("experts"), count("intermediate_size")
    return Model(
        name=row["name"],
        path=None,
        architecture=row["architecture"] or None,
        parameters=count("parameters"),
        embedding_parameters=count("embedding_parameters"),
        hidden_size=count("hidden_size"),
        intermediate_size=inside,
        num_layers=count("num_layers"),
        num_heads=count("num_heads"),
        num_kv_heads=count("num_kv_heads"),
        head_dim=count("head_dim"),
        vocab_size=count("vocab_size"),
        max_positions=count("max_positions"),
        experts=experts,
        experts_per_token=count("experts_per_token"),
        expert_size=count("expert_size") or (inside if experts else None),
        **windows(row["architecture"], count("window")),
        tied_embeddings={"yes": True, "no": False}.get(row["tied_embeddings"]),
        dtype=row["dtype"] or None,
        gated={"yes": True, "likely": True, "no": False}.get(row["gated"]),
        licence=row["licence"] or None,
        source="shipped table",
    )


def _unknown(name: str) -> ProblemError:
    near = difflib.get_close_matches(name, catalog.model_names(), n=1, cutoff=0.8)
    hint = f"did you mean {near[0]}? Otherwise " if near else ""
    return _refused(
        "not a folder here, not in the local hub cache and not in the table of known models",
        name,
        f"{hint}--hub asks the hub, as in `tunewright model show {name} --hub`; or download it (hf "
        f"download {name}), then give its folder",
    )


def _near_folder(folder: Path) -> str:
    end = f"/{folder.name.lower()}"
    called = [known for known in catalog.model_names() if known.lower().endswith(end)]
    if called:
        return f"did you mean {called[0]}, as hubs call it?"
    try:
        siblings = [p.name for p in folder.parent.iterdir() if p.is_dir()]
    except OSError:
        return f"{folder.parent} does not exist either; give a folder or a hub id"
    near = difflib.get_close_matches(folder.name, siblings, n=1)
    hint = f"did you mean {folder.parent / near[0]}?" if near else "check the path;"
    return f"{hint} a hub id looks like Qwen/Qwen3-8B"


def _refused(what: str, where: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=2))
