"""A rank's layers are spread evenly over its devices, and nothing of the model is left out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import split
from engine.failure import RunError
from engine.spec import Spec

pytestmark = pytest.mark.engine


def spec(method: str = "full", **parallel: Any) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": "m", "dtype": "float32"},
            "data": {"data": "d"},
            "method": {"method": method},
            "parallel": {"strategy": "layer_split", "device_kind": "cuda", **parallel},
            "training": {
                "effective_batch_size": parallel["num_devices"] // parallel["devices_per_rank"]
            },
        }
    )


def folder(path: Path, *, layers: int, tied: bool) -> Path:
    from transformers import LlamaConfig

    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    ).save_pretrained(path)
    return path


@given(
    sizes=st.lists(st.integers(1, 50).map(float), min_size=1, max_size=9),
    count=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_no_other_cut_has_a_smaller_largest_part(sizes: list[float], count: int) -> None:
    count = min(count, len(sizes))
    cuts = split.even_cuts(sizes, count)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(sizes), count + 1)
    assert all(start < end for start, end in itertools.pairwise(cuts))

    def largest(at: tuple[int, ...]) -> float:
        return max(sum(sizes[a:b]) for a, b in itertools.pairwise((0, *at, len(sizes))))

    others = itertools.combinations(range(1, len(sizes)), count - 1)
    assert largest(tuple(cuts[1:-1])) == min(map(largest, others))


def test_each_rank_has_its_own_devices_and_first_the_one_it_is_given() -> None:
    two_by_three = spec(num_devices=6, devices_per_rank=3)
    owned = [list(split.own_devices(two_by_three, rank, 2)) for rank in range(2)]

    assert owned == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("method", ["full", "qlora"])
def test_every_weight_has_a_device_and_a_tied_head_stays_with_its_embedding(
    tmp_path: Path, method: str, tied: bool
) -> None:
    from accelerate.utils import check_device_map
    from transformers import AutoConfig, AutoModelForCausalLM

    path = folder(tmp_path, layers=8, tied=tied)
    placed = split.device_map(spec(method, num_devices=4, devices_per_rank=4), path, range(4))

    check_device_map(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path)), placed)
    layers = [placed[f"model.layers.{n}"] for n in range(8)]
    assert layers == sorted(layers)
    assert set(layers) == {0, 1, 2, 3}
    assert placed["model.embed_tokens"] == 0
    assert placed["lm_head"] == (0 if tied else 3)


def test_more_devices_than_layers_are_refused_with_what_fits(tmp_path: Path) -> None:
    path = folder(tmp_path, layers=2, tied=True)

    with pytest.raises(RunError, match="set devices_per_rank=2 or less"):
        split.device_map(spec(num_devices=4, devices_per_rank=4), path, range(4))


def test_a_model_cut_there_gives_the_same_loss(tiny_model: Path) -> None:
    import torch
    from accelerate import dispatch_model
    from transformers import AutoModelForCausalLM

    placed = split.device_map(spec(num_devices=2, devices_per_rank=2), tiny_model, range(2))
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    ids = torch.arange(40).reshape(2, 20)
    whole = model(ids, labels=ids).loss.item()
    cut = dispatch_model(model, dict.fromkeys(placed, "cpu"), force_hooks=True)

    assert cut(ids, labels=ids).loss.item() == whole
    hooked = {name for name, module in cut.named_modules() if hasattr(module, "_hf_hook")}
    assert set(placed) <= hooked
