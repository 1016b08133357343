"""How fast this machine is at what training does: one line of JSON for each rate, in 20 seconds.

`python -m engine.bench --disk DIR` prints:
  device  kind, name
  rate    name, value, what (how it was measured)
          matmul_tflops, memory_gbs, host_to_device_gbs, cpu_adam_parameters_per_second,
          disk_write_gbs
  failed  name, text: this one could not be measured; the others go on
  end     seconds
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from engine.events import EXIT_OK
from engine.theirs import why

TOTAL_SECONDS = 20.0
PART_SECONDS = 1.5
"""Of measuring; what is measured is made, and done once, before the clock starts."""
ROUNDS = 3
LARGEST_MATRIX = 8192
COPIED_BYTES = {"cpu": 256 * 1024**2}
COPIED_DEVICE_BYTES = 1024**3
PINNED_BYTES = 256 * 1024**2
ADAM_PARAMETERS = 8_000_000
BLOCK_BYTES = 32 * 1024**2
WRITTEN_BYTES = 1024**3


def main(given: list[str] | None = None) -> NoReturn:
    """Measure each rate; those that no time is left for are not printed. Ends this process."""
    parser = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__)
    parser.add_argument("--disk", type=Path, required=True, help="a folder on the runs' disk")
    parser.add_argument("--seconds", type=float, default=TOTAL_SECONDS)
    options = parser.parse_args(given)
    import torch

    begun = time.monotonic()
    at: list[str] = []
    timer = threading.Timer(options.seconds, _give_up, (options.seconds, at))
    timer.daemon = True
    timer.start()
    device = find_device(torch)
    _say("device", device_kind=device.type, name=_name(torch, device))
    for name, measure in parts(torch, device, options.disk):
        at.append(name)
        try:
            value, what = measure()
        except Exception as error:
            _say("failed", name=name, text=why(error))
        else:
            _say("rate", name=name, value=value, what=what)
    _say("end", seconds=round(time.monotonic() - begun, 2))
    os._exit(EXIT_OK)  # taking torch apart can last longer than a rate takes


def _give_up(seconds: float, at: Sequence[str]) -> None:
    """On a busy machine a rate can take all the time there is: those before it are said."""
    for name in at[-1:]:
        _say("failed", name=name, text=f"it was not done when {seconds:.0f} seconds were over")
    _say("end", seconds=seconds)
    os._exit(EXIT_OK)


Rate = tuple[float, str]
"""(value, how it was measured)"""


def parts(torch: Any, device: Any, disk: Path) -> Iterator[tuple[str, Callable[[], Rate]]]:
    """(name of a rate, how to measure it), the most useful first."""
    yield "matmul_tflops", lambda: matmul(torch, device)
    yield "memory_gbs", lambda: memory(torch, device)
    if device.type not in ("cpu", "mps"):
        yield "host_to_device_gbs", lambda: host_to_device(torch, device)
    yield "disk_write_gbs", lambda: disk_write(disk)
    yield "cpu_adam_parameters_per_second", lambda: cpu_adam(torch)


def find_device(torch: Any) -> Any:
    """The first accelerator that torch can use, else the CPU."""
    if importlib.util.find_spec("torch_npu"):
        __import__("torch_npu")
    for kind in ("cuda", "npu", "xpu"):
        runtime = getattr(torch, kind, None)
        if runtime is not None and runtime.is_available():
            return torch.device(kind, 0)
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _name(torch: Any, device: Any) -> str:
    ask = getattr(getattr(torch, device.type, None), "get_device_name", None)
    return str(ask(0)) if ask else str(device.type)


def matmul(torch: Any, device: Any) -> Rate:
    """Dense bf16 TFLOP/s, on the largest square matrices that keep to their time."""
    wait = _waiter(torch, device)
    size = 256
    work = _squares(torch, device, size)
    while size < LARGEST_MATRIX and _round(work, wait, 2) * 8 < PART_SECONDS / ROUNDS:
        size *= 2
        work = _squares(torch, device, size)
    seconds = seconds_of(work, wait)
    return 2 * size**3 / seconds / 1e12, f"bf16, {size} × {size}"


def _squares(torch: Any, device: Any, size: int) -> Callable[[], Any]:
    one, other = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
    return lambda: one @ other


def memory(torch: Any, device: Any) -> Rate:
    """GB/s of a copy inside the device's memory, counted as read and written."""
    size = COPIED_BYTES.get(device.type, COPIED_DEVICE_BYTES)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = seconds_of(lambda: target.copy_(source), _waiter(torch, device))
    return 2 * size / seconds / 1e9, f"copy of {size // 1024**2} MiB"


def host_to_device(torch: Any, device: Any) -> Rate:
    """GB/s from pinned host memory, else, where it cannot be pinned, from ordinary memory."""
    source = torch.zeros(PINNED_BYTES, dtype=torch.uint8)
    what = "pinned"
    try:
        source = source.pin_memory()
    except RuntimeError:
        what = "not pinned: the host refuses to pin so much"
    target = torch.empty(PINNED_BYTES, dtype=torch.uint8, device=device)
    seconds = seconds_of(lambda: target.copy_(source, non_blocking=True), _waiter(torch, device))
    return PINNED_BYTES / seconds / 1e9, what


def cpu_adam(torch: Any) -> Rate:
    """Parameters that one step of Adam on the processor updates in a second, in float32."""
    weights = torch.nn.Parameter(torch.zeros(ADAM_PARAMETERS))
    weights.grad = torch.ones(ADAM_PARAMETERS)
    optimizer, what = _adam(torch, weights)
    seconds = seconds_of(optimizer.step, lambda: None)
    return ADAM_PARAMETERS / seconds, what


def _adam(torch: Any, weights: Any) -> tuple[Any, str]:
    """DeepSpeed's Adam where it is built: building it takes longer than all that is measured."""
    if deepspeed_adam_is_built(torch):
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        return DeepSpeedCPUAdam([weights]), "deepspeed"
    return torch.optim.AdamW([weights], fused=True), "torch"


def deepspeed_adam_is_built(torch: Any) -> bool:
    """Whether DeepSpeed's CPU Adam came built with it, or was built here before."""
    found = importlib.util.find_spec("deepspeed")
    if found is None or not found.submodule_search_locations:
        return False
    package = Path(found.submodule_search_locations[0])
    from torch.utils import cpp_extension

    own = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    built = [*package.glob("ops/adam/cpu_adam*.so"), *Path(own).glob("**/cpu_adam/cpu_adam*.so")]
    return bool(built)


def disk_write(folder: Path) -> Rate:
    """GB/s of writing a file until the disk has it, in blocks, for at most as long as a part."""
    block = os.urandom(BLOCK_BYTES)  # a file system that compresses gains nothing
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    most = min(WRITTEN_BYTES, free // 4)
    written = 0
    with tempfile.TemporaryFile(dir=folder) as file:
        begun = time.perf_counter()
        while written + BLOCK_BYTES <= most and time.perf_counter() - begun < PART_SECONDS:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            written += BLOCK_BYTES
        seconds = time.perf_counter() - begun
    if not written:
        raise OSError("too little space is free")
    return written / seconds / 1e9, f"{written // 1024**2} MiB, synchronised"


def seconds_of(work: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Seconds of a piece of work: the median of three rounds, each of as many as there is time for.

    A round is waited for once: with short pieces the waiting would be measured.
    """
    _round(work, wait, 1)
    times = max(1, min(1000, int(PART_SECONDS / ROUNDS / _round(work, wait, 1))))
    return statistics.median(_round(work, wait, times) for _ in range(ROUNDS))


def _round(work: Callable[[], Any], wait: Callable[[], None], times: int) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        work()
    wait()
    return (time.perf_counter() - begun) / times


def _waiter(torch: Any, device: Any) -> Callable[[], None]:
    if device.type == "cpu":
        return lambda: None
    synchronize: Callable[[], None] = getattr(torch, device.type).synchronize
    return synchronize


def _say(kind: str, **fields: Any) -> None:
    os.write(1, (json.dumps({"kind": kind, **fields}) + "\n").encode())


if __name__ == "__main__":
    main()
