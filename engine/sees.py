"""What torch sees of the accelerators, as JSON lines: `python -m engine.sees [--bnb] [--free]`.

It runs as a child of the probe: torch takes seconds to import, and bitsandbytes can crash where
the driver does not fit. Each line is printed as soon as it is known.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from engine.theirs import why, with_class


def main(arguments: list[str]) -> int:
    """Print a line for torch, and one for a 4-bit layer where `--bnb` asks for it."""
    try:
        import torch
    except Exception as error:
        say(error=with_class(error))
        return 0
    backend = _backend(torch)
    say(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        arch_list=list(torch.cuda.get_arch_list()) if backend == "cuda" else [],
        **_devices(torch, backend, "--free" in arguments),
    )
    if "--bnb" in arguments:
        say(**_four_bits(torch, backend))
    return 0


def _backend(torch: Any) -> str:
    """Name of the torch module whose devices can be used; `cpu` when there is none."""
    for name in ("cuda", "npu", "xpu"):
        module = getattr(torch, name, None)
        try:
            if module is not None and module.is_available() and module.device_count() > 0:
                return name
        except Exception:
            continue
    return "cpu"


def _devices(torch: Any, backend: str, free: bool) -> dict[str, Any]:
    """{"devices", "peer_access"}, with "error" when listing them fails."""
    if backend == "cpu":
        return {"devices": [], "peer_access": [], "error": _why_none(torch)}
    module = getattr(torch, backend)
    found: dict[str, Any] = {"devices": [], "peer_access": [], "error": None}
    try:
        for index in range(module.device_count()):
            found["devices"].append(_device(module, index, free))
        found["peer_access"] = _peers(torch, backend, len(found["devices"]))
    except Exception as error:
        found["error"] = with_class(error)
    return found


def _why_none(torch: Any) -> str | None:
    """What CUDA says when a CUDA build finds no device; None for a build without CUDA."""
    if torch.version.cuda is None:
        return None
    try:
        torch.cuda.init()
    except Exception as error:
        return why(error)
    return None


def _device(module: Any, index: int, free: bool) -> dict[str, Any]:
    properties = module.get_device_properties(index)
    capability = (getattr(properties, "major", None), getattr(properties, "minor", None))
    return {
        "index": index,
        "name": str(properties.name),
        "uuid": str(properties.uuid) if hasattr(properties, "uuid") else None,
        "memory_total_bytes": int(properties.total_memory),
        "compute_capability": list(capability) if None not in capability else None,
        "integrated": bool(getattr(properties, "is_integrated", 0)),
        "memory_free_bytes": _free_bytes(module, index) if free else None,
    }


def _free_bytes(module: Any, index: int) -> int | None:
    """Asking makes a context, which takes memory itself; older torch_npu cannot be asked."""
    try:
        return int(module.mem_get_info(index)[0])
    except Exception:
        return None


def _peers(torch: Any, backend: str, count: int) -> list[list[int]]:
    """Pairs of which the first reads the second's memory."""
    if backend != "cuda":
        return []
    pairs = ((a, b) for a in range(count) for b in range(count) if a != b)
    return [[a, b] for a, b in pairs if torch.cuda.can_device_access_peer(a, b)]


def _four_bits(torch: Any, backend: str) -> dict[str, Any]:
    """{"bnb_4bit", "bnb_error"}: whether a 4-bit layer runs here and gives numbers."""
    try:
        from bitsandbytes.nn import Linear4bit
    except Exception as error:
        return {"bnb_4bit": False, "bnb_error": with_class(error)}
    try:
        layer = Linear4bit(64, 64, bias=False, compute_dtype=torch.float32, quant_type="nf4")
        answer = layer.to(backend)(torch.ones(2, 64, device=backend))
        good = bool(torch.isfinite(answer).all())
    except Exception as error:
        return {"bnb_4bit": False, "bnb_error": with_class(error)}
    return {"bnb_4bit": good, "bnb_error": None if good else "its answer is not finite"}


def say(**line: Any) -> None:
    """Print one JSON line at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
