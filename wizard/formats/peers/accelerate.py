"""accelerate: the YAML that `accelerate launch --config_file` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wizard.formats import rules, text
from wizard.formats.reader import NO_SETTING, PLANNED, Reader, is_true
from wizard.formats.values import Exported, Left, told
from wizard.formats.writer import Writer, zero
from wizard.plan import Plan

PRECISION: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "no": "float32"}
NESTED = ("deepspeed_config", "fsdp_config", "dynamo_config", "fp8_config", "parallelism_config")
DEEPSPEED: Mapping[str, str] = {
    "deepspeed_config.gradient_accumulation_steps": "gradient_accumulation_steps",
    "deepspeed_config.gradient_clipping": "max_grad_norm",
    "deepspeed_config.offload_optimizer_nvme_path": "nvme_path",
}
_ONE_MACHINE = "it names one of several machines: an exported job knows its own"
LEFT: Mapping[str, str] = {
    "compute_environment": "a run starts where it is planned, or is exported for a scheduler",
    "gpu_ids": "it names devices of one machine: --devices does",
    "num_machines": "--nodes says it when a job is exported",
    "machine_rank": _ONE_MACHINE,
    "main_process_ip": _ONE_MACHINE,
    "main_process_port": _ONE_MACHINE,
    "same_network": _ONE_MACHINE,
    "rdzv_backend": "torchrun's own is used",
    "main_training_function": "a run has one",
    "debug": NO_SETTING,
    "use_cpu": PLANNED,
    "commands": "it would run commands",
    "command_file": "it would run commands",
    "tpu_env": "a preset changes no environment",
}
_PREFIXES: Mapping[str, str] = {
    "fsdp_config.": "how FSDP wraps and shards is chosen by the planner",
    "deepspeed_config.": "how DeepSpeed is set up is chosen by the planner",
}


def read(reader: Reader) -> None:
    """Carry over what an accelerate configuration says."""
    _flatten(reader)
    if str(reader.get("use_cpu")).lower() == "true":
        reader.carry("device_kind", "cpu", "use_cpu")
    _strategy(reader)
    count = reader.get("num_processes")
    if reader.get("num_machines") in (None, 1, "1"):
        reader.carry_each({"num_processes": "num_devices"})
    elif count is not None:
        reader.leave("num_processes", "ranks of several machines: --nodes says how many")
    precision = reader.get("mixed_precision")
    # YAML reads a bare `no` as false.
    name = "no" if precision is False else str(precision)
    if precision is not None and name in PRECISION:
        reader.carry("dtype", PRECISION[name], "mixed_precision")
    for key in ("gradient_accumulation_steps", "gradient_clipping"):
        if str(reader.get(f"deepspeed_config.{key}")) == "auto":
            reader.leave(f"deepspeed_config.{key}", PLANNED)
    reader.carry_each(DEEPSPEED)
    for prefix, why in _PREFIXES.items():
        for key in [key for key in reader.values if key.startswith(prefix)]:
            reader.leave(key, why)
    reader.finish(LEFT)


def _flatten(reader: Reader) -> None:
    """`deepspeed_config: {zero_stage: 3}` is the key `deepspeed_config.zero_stage`."""
    for outer in NESTED:
        inner = reader.get(outer)
        if isinstance(inner, dict):
            del reader.values[outer]
            reader.values.update({f"{outer}.{key}": value for key, value in inner.items()})


def _strategy(reader: Reader) -> None:
    kind = str(reader.get("distributed_type")).upper()
    if kind == "NO" or reader.get("distributed_type") is False:
        reader.carry("strategy", "single", "distributed_type")
    elif kind in ("MULTI_GPU", "MULTI_NPU"):
        reader.carry("strategy", "ddp", "distributed_type")
    elif kind == "MULTI_CPU":
        reader.carry_all({"strategy": "ddp", **_cpu(reader)}, "distributed_type")
    elif kind == "FSDP":
        reader.carry("strategy", "fsdp", "distributed_type")
    elif kind == "DEEPSPEED":
        _deepspeed(reader)


def _cpu(reader: Reader) -> dict[str, Any]:
    return {} if "device_kind" in reader.settings else {"device_kind": "cpu"}


def _deepspeed(reader: Reader) -> None:
    stage = str(reader.get("deepspeed_config.zero_stage"))
    offload = {
        part: str(reader.get(f"deepspeed_config.offload_{part}_device") or "none")
        for part in ("optimizer", "param")
    }
    settings = {"strategy": f"zero{stage}" if stage in ("1", "2", "3") else "ddp"}
    if offload["param"] != "none":
        settings["offload"] = "parameters"
    elif offload["optimizer"] != "none":
        settings["offload"] = "optimizer"
    if "nvme" in offload.values():
        settings["offload_device"] = "nvme"
    keys = [f"deepspeed_config.{name}" for name in _STAGE_KEYS]
    reader.carry_all(settings, "distributed_type", *keys)
    if is_true(reader.get("deepspeed_config.zero3_init_flag")):
        reader.leave("deepspeed_config.zero3_init_flag", "weights are sharded while they load")


_STAGE_KEYS = ("zero_stage", "offload_optimizer_device", "offload_param_device")


OWN = "belongs to the script that accelerate launches"
TYPES: Mapping[str, str] = {"single": "NO", "ddp": "MULTI_GPU", "fsdp": "FSDP"}


def write(plan: Plan, name: str, nodes: int = 1) -> Exported:
    """The launch configuration of a plan: devices, number format and sharing."""
    writer = Writer(plan=plan)
    parallel, dtype = plan.spec.parallel, plan.spec.model.dtype
    config = zero(plan)
    cpu = parallel.device_kind == "cpu"
    kind = "DEEPSPEED" if config is not None else TYPES.get(parallel.strategy)
    if kind == "MULTI_GPU" and parallel.device_kind != "cuda":
        kind = {"cpu": "MULTI_CPU", "npu": "MULTI_NPU"}[parallel.device_kind]
    writer.put("compute_environment", "LOCAL_MACHINE")
    if kind is not None:
        writer.said("strategy")
    writer.put("distributed_type", kind or "MULTI_GPU")
    writer.put("num_machines", nodes)
    writer.put("machine_rank", 0)
    writer.put("num_processes", parallel.num_devices, "num_devices")
    word = next(word for word, name in PRECISION.items() if name == dtype)
    writer.put("mixed_precision", word, "dtype")
    writer.put("use_cpu", cpu, "device_kind")
    if config is not None:
        writer.put("deepspeed_config", _write_deepspeed(writer), "offload")
    left = _left(writer)
    head = [
        f"{name}: {plan.title}",
        *_start(plan, nodes),
        *rules.left_lines(told(left)),
    ]
    content = text.comments(head) + text.yaml_text(writer.values)
    return Exported(files={"accelerate.yaml": content}, left=left)


def _write_deepspeed(writer: Writer) -> dict[str, Any]:
    parallel, training = writer.plan.spec.parallel, writer.plan.spec.training
    stage = int(parallel.strategy.removeprefix("zero"))
    writer.said("gradient_accumulation_steps", "max_grad_norm")
    values: dict[str, Any] = {
        "zero_stage": stage,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "gradient_clipping": training.max_grad_norm,
        "offload_optimizer_device": "cpu" if parallel.offload != "none" else "none",
        "offload_param_device": "cpu" if parallel.offload == "parameters" else "none",
    }
    if stage == 3:
        values |= {"zero3_init_flag": True, "zero3_save_16bit_model": True}
    return values


def _left(writer: Writer) -> tuple[Left, ...]:
    """All that is trained, and how, is the script's own."""
    writer.said("offload", "offload_device", "nvme_path", "devices", "effective_batch_size")
    writer.said("devices_per_rank")
    for setting in ("ddp_timeout", *writer.plan.spec.training.model_dump()):
        writer.leave(setting, OWN)
    for table in (writer.plan.spec.model, writer.plan.spec.data, writer.plan.spec.method):
        for setting, value in table.model_dump().items():
            if value is not None:
                writer.leave(setting, OWN)
    return writer.finish()


def _start(plan: Plan, nodes: int) -> list[str]:
    parallel = plan.spec.parallel
    names = f"CUDA_VISIBLE_DEVICES={','.join(parallel.devices)} " if parallel.devices else ""
    start = f"{names}accelerate launch --config_file accelerate.yaml your_script.py"
    if nodes == 1:
        return [f"Start it with: {start}"]
    return [f"On each machine its machine_rank, and main_process_ip of the first: {start}"]
