"""Split: which of a rank's devices holds which layers of its model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from torch import nn

from engine.failure import RunError
from engine.spec import Spec

BYTES_PER_4BIT_WEIGHT = 0.516
"""Normal-float 4-bit with quantized constants: half a byte, and a share of the constants."""


def own_devices(spec: Spec, local_rank: int, local_ranks: int) -> range:
    """Numbers of the devices of a rank: its first is the one that the libraries give it."""
    last = local_ranks * spec.parallel.devices_per_rank
    return range(local_rank, last, local_ranks)


def device_map(spec: Spec, path: Path, devices: Sequence[int]) -> dict[str, int]:
    """Module → device for the model in a folder, each device with about as many weight bytes.

    Raises RunError (bad_spec) when there are more devices than layers.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(path))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, spec.model.dtype))
    before, layers, after = parts(model)
    if len(layers) < len(devices):
        raise RunError(
            "bad_spec",
            f"devices_per_rank is {len(devices)}, but the model has {len(layers)} layers: "
            f"set devices_per_rank={len(layers)} or less",
        )
    four_bit = spec.method.method == "qlora"
    sizes = [weight_bytes([layer], four_bit=four_bit) for layer in layers]
    sizes[0] += weight_bytes(before, four_bit=False)
    sizes[-1] += weight_bytes(after, four_bit=False)
    placed = {name: devices[0] for name, _ in before}
    for device, (start, end) in zip(devices, pairwise(even_cuts(sizes, len(devices))), strict=True):
        placed |= {name: device for name, _ in layers[start:end]}
    return placed | {name: devices[-1] for name, _ in after}


Unit = tuple[str, nn.Module]
"""A module that stays on one device, with its name."""


def parts(model: nn.Module) -> tuple[list[Unit], list[Unit], list[Unit]]:
    """(what is placed with the first layer, the layers, what is placed with the last).

    A head that is tied to the embeddings goes where they are.
    """
    kinds = frozenset(model._no_split_modules or ())
    units = list(_units(model, kinds))
    places = [place for place, (_, module) in enumerate(units) if _is_layer(module, kinds)]
    first, last = places[0], places[-1] + 1
    before, layers, after = units[:first], units[first:last], units[last:]
    held = {id(weight) for _, module in before for weight in module.parameters()}
    tied = [unit for unit in after if any(id(w) in held for w in unit[1].parameters())]
    return before + tied, layers, [unit for unit in after if unit not in tied]


def _is_layer(module: nn.Module, kinds: frozenset[str]) -> bool:
    return type(module).__name__ in kinds


def _units(module: nn.Module, kinds: frozenset[str], prefix: str = "") -> Iterator[Unit]:
    """Layers, and the largest modules without any, in the model's order."""
    for name, child in module.named_children():
        if _is_layer(child, kinds) or not any(_is_layer(m, kinds) for m in child.modules()):
            yield prefix + name, child
        else:
            yield from _units(child, kinds, f"{prefix}{name}.")


def weight_bytes(units: Iterable[Unit], *, four_bit: bool) -> float:
    """Bytes of the weights of some modules, tied ones once; `four_bit` for the linear layers."""
    seen: dict[int, float] = {}
    for _, unit in units:
        for module in unit.modules():
            packed = four_bit and isinstance(module, nn.Linear)
            for weight in module.parameters(recurse=False):
                each = BYTES_PER_4BIT_WEIGHT if packed else weight.element_size()
                seen[id(weight)] = weight.numel() * each
    return sum(seen.values())


def even_cuts(sizes: Sequence[float], count: int) -> list[int]:
    """Where to cut a row into `count` parts so that the largest sum is least: 0, …, its length.

    Every part gets something. Linear partition by dynamic programming over the first parts.
    """
    sums = list(accumulate(sizes, initial=0.0))
    best = {end: (sums[end], [0, end]) for end in range(1, len(sums))}
    for part in range(2, count + 1):
        best = {
            end: min(
                (max(best[cut][0], sums[end] - sums[cut]), [*best[cut][1], end])
                for cut in range(part - 1, end)
            )
            for end in range(part, len(sums))
        }
    return best[len(sizes)][1]
