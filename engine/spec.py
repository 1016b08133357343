"""Spec: what the trainer reads, and nothing more."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import tomlkit
from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    model_validator,
)

from engine.events import printable
from engine.methods import METRICS
from engine.methods import STAGE_FORMAT as STAGE_FORMAT
from engine.methods import STAGE_OF as STAGE_OF
from engine.methods import Method as Method
from engine.methods import MethodTable as MethodTable
from engine.methods import all_labelled as all_labelled
from engine.methods import wrong_stage as wrong_stage
from engine.table import LARGEST, Table
from engine.theirs import why
from engine.training import LOWEST_RATE as LOWEST_RATE
from engine.training import PREFETCHED as PREFETCHED
from engine.training import TrainingTable as TrainingTable

Strategy = Literal["single", "ddp", "zero1", "zero2", "zero3", "fsdp", "layer_split"]
DeviceKind = Literal["cuda", "npu", "cpu"]
MOST_DEVICES = 65_536
LONGEST_TIMEOUT_SECONDS = 7 * 24 * 3600


ZERO_STAGES: Mapping[str, int] = {"zero1": 1, "zero2": 2, "zero3": 3}
"""Strategy → stage of DeepSpeed's ZeRO."""
OFFLOADS: Mapping[Strategy, tuple[str, ...]] = {
    "zero2": ("optimizer",),
    "zero3": ("optimizer", "parameters"),
    "fsdp": ("parameters",),
}
"""Strategy → what it can keep off the devices."""


class SpecError(ValueError):
    """A spec or a setting that cannot be used; the text says what, where and how to fix it."""


def _column_pairs(text: str | None) -> str | None:
    if text is None:
        return None
    pairs = [tuple(map(str.strip, part.split("="))) for part in text.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise ValueError(f"{text!r}: write ours=theirs, as instruction=question,output=answer")
    if any(len(set(names)) < len(pairs) for names in zip(*pairs, strict=True)):
        raise ValueError(f"{text!r}: names a column twice")
    return text


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a device is named twice: a rank needs one of its own")
    return names


PLUGIN = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")
"""A file and what is taken from it."""
SEVERAL = ("callback",)
"""Kinds of plug-ins of which there may be several."""


def plugins(text: str) -> Iterator[str]:
    """Each `file.py:name` of a setting."""
    return (part.strip() for part in text.split(","))


def plugin(text: str | None) -> str | None:
    """Refuse what is no `file.py:name`, where it stands."""
    if text is not None and not all(PLUGIN.fullmatch(part) for part in plugins(text)):
        raise ValueError(f"{text!r}: write a Python file and a name in it, as my_code.py:my_name")
    return text


class ModelTable(Table):
    """Which weights are trained."""

    model: str = Field(min_length=1)
    """A local folder, or a hub id such as `Qwen/Qwen3-8B`."""
    revision: str | None = None
    """Commit of a hub model; None takes the newest and records it."""
    source: Literal["auto", "local", "huggingface", "modelscope"] = "auto"
    """Where a model that is not a folder is fetched from."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Number format the base weights are loaded in, always stated."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    """Attention kernels."""
    template: Literal["chatml"] | None = None
    """A shipped chat template; None uses the model's own."""
    trust_remote_code: bool = False
    """Whether Python files that come with the model may run, which its `auto_map` names."""


class DataTable(Table):
    """Which rows are learnt, and how they become tokens."""

    data: str = Field(min_length=1)
    """A data file or several, as `a.jsonl,b.parquet#500,c.csv*0.5`: rows taken, times seen."""
    data_format: Literal[
        "auto",
        "messages",
        "alpaca",
        "query_response",
        "prompt_completion",
        "text",
        "preference",
        "kto",
    ] = "auto"
    """Shape of a row; `auto` looks at the first one of each set."""
    columns: Annotated[str | None, AfterValidator(_column_pairs)] = None
    """Names of a file's columns, as `instruction=question,output=answer`: ours=theirs."""
    model_name: str | None = None
    """What stands for `{{NAME}}` in the rows."""
    model_author: str | None = None
    """What stands for `{{AUTHOR}}` in the rows."""
    system: str | None = None
    """System text put before rows that have none."""
    max_length: int = Field(default=1024, ge=8, le=LARGEST)
    """Tokens a row may have; longer rows are cut at the end."""
    packing: bool = False
    """Rows of answers are put together into packs of `max_length` tokens, none seeing another."""
    max_dropped_percent: float = Field(default=1.0, ge=0, le=100)
    """Rows that may be unusable, in percent, before the run refuses to start."""
    eval_data: str | None = Field(default=None, min_length=1)
    """A second file, of rows to evaluate on; None evaluates on `eval_split`, if on anything."""
    eval_split: float = Field(default=0.0, ge=0, le=0.5)
    """Share of the rows that is held out of training and evaluated on; same seed, same rows."""

    @property
    def evaluates(self) -> bool:
        """Whether there are rows to evaluate on."""
        return self.eval_data is not None or self.eval_split > 0

    @model_validator(mode="after")
    def _one_place_to_evaluate(self) -> Self:
        if self.eval_data is not None and self.eval_split > 0:
            raise ValueError(
                "eval_data and eval_split are both set: a run evaluates on a file or on a share "
                "of its own rows; leave one out"
            )
        return self


class ParallelTable(Table):
    """How the ranks share the work."""

    strategy: Strategy
    """One device; a copy per rank (`ddp`); DeepSpeed ZeRO, which shards the optimizer (`zero1`),
    the gradients too (`zero2`), or everything (`zero3`); PyTorch FSDP2, which shards everything
    (`fsdp`); or each copy's layers spread over several devices (`layer_split`)."""
    device_kind: DeviceKind
    """What a rank runs on."""
    num_devices: int = Field(default=1, ge=1, le=MOST_DEVICES)
    """Devices of the run."""
    devices_per_rank: int = Field(default=1, ge=1, le=MOST_DEVICES)
    """Devices that one rank spreads its layers over; more than 1 only with `layer_split`."""
    devices: Annotated[tuple[str, ...], AfterValidator(_each_once)] = ()
    """UUIDs of the devices, in rank order; empty when the kind has none. With `layer_split` first
    those that hold the first layers of each rank, then those that hold its next ones."""
    offload: Literal["none", "optimizer", "parameters"] = "none"
    """What leaves the devices between its uses; `parameters` includes the optimizer."""
    offload_device: Literal["cpu", "nvme"] = "cpu"
    """Where it goes: host memory, or files on a fast disk."""
    nvme_path: str | None = Field(default=None, min_length=1)
    """Folder of those files; each run makes one of its own in it."""
    ddp_timeout: int = Field(default=1800, ge=10, le=LONGEST_TIMEOUT_SECONDS)
    """Seconds a collective may wait before the run is called hung."""

    @property
    def ranks(self) -> int:
        """Processes of the run, each with its own rows."""
        return self.num_devices // self.devices_per_rank

    @model_validator(mode="after")
    def _devices_make_whole_ranks(self) -> Self:
        if self.strategy == "single" and self.num_devices != 1:
            raise ValueError("strategy `single` has one device: set strategy=ddp or num_devices=1")
        if self.strategy != "layer_split" and self.devices_per_rank != 1:
            raise ValueError(
                f"devices_per_rank is {self.devices_per_rank}, which only layer_split uses: "
                "set strategy=layer_split or devices_per_rank=1"
            )
        if self.strategy == "layer_split" and self.devices_per_rank == 1:
            raise ValueError(
                "strategy `layer_split` needs 2 or more devices for each rank: "
                f"set devices_per_rank={max(2, self.num_devices)} or strategy=ddp"
            )
        if self.num_devices % self.devices_per_rank:
            raise ValueError(
                f"num_devices {self.num_devices} is not a multiple of devices_per_rank "
                f"{self.devices_per_rank}: every rank needs as many devices"
            )
        return self

    @model_validator(mode="after")
    def _offload_has_a_way_and_a_place(self) -> Self:
        able = OFFLOADS.get(self.strategy, ())
        if self.offload != "none" and self.offload not in able:
            ways = " or ".join(name for name, kinds in OFFLOADS.items() if self.offload in kinds)
            raise ValueError(f"offload={self.offload} needs strategy={ways}")
        if self.offload_device == "nvme" and (self.strategy != "zero3" or self.offload == "none"):
            raise ValueError(
                "offload_device=nvme needs strategy=zero3 and an offload: "
                "set offload=parameters, or offload_device=cpu"
            )
        if (self.nvme_path is None) == (self.offload_device == "nvme"):
            raise ValueError(
                "offload_device=nvme and nvme_path go together: "
                "set both, or offload_device=cpu without nvme_path"
            )
        return self


class PluginTable(Table):
    """The user's own code, each as `file.py:name`; only what is named here is ever loaded."""

    loss: Annotated[str | None, AfterValidator(plugin)] = None
    """Loss of `sft` and `pretrain`: of outputs, labels and num_items_in_batch (learnt tokens of all
    ranks; None in an evaluation); gives a tensor."""
    metric: Annotated[str | None, AfterValidator(plugin)] = None
    """Metrics of each evaluation: takes predictions (the likeliest token after each) and
    label_ids, gives names with numbers."""
    callback: Annotated[str | None, AfterValidator(plugin)] = None
    """A TrainerCallback of transformers, made without arguments; several separated by commas."""
    preprocessor: Annotated[str | None, AfterValidator(plugin)] = None
    """Rows before they are read: takes one, gives one, or None to leave it out."""
    trainer: Annotated[str | None, AfterValidator(plugin)] = None
    """A class made from `Trainer` of engine.recipes.<stage>, used in its place."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for kind, found in self.named.items():
            if len(found) > 1 and kind not in SEVERAL:
                raise ValueError(f"plugins.{kind} takes one of your own, not {len(found)}")
        return self

    @property
    def named(self) -> Mapping[str, tuple[str, ...]]:
        """What is plugged in where: kind → each `file.py:name`."""
        values = {kind: getattr(self, kind) for kind in type(self).model_fields}
        return {kind: tuple(plugins(text)) for kind, text in values.items() if text}


class Spec(Table):
    """One run of the trainer."""

    version: Literal[1] = 1
    model: ModelTable
    data: DataTable
    method: MethodTable
    parallel: ParallelTable
    training: TrainingTable
    plugins: PluginTable = PluginTable()

    @model_validator(mode="after")
    def _batch_is_exact(self) -> Self:
        t = self.training
        product = (
            t.per_device_train_batch_size * t.gradient_accumulation_steps * self.parallel.ranks
        )
        if product != t.effective_batch_size:
            raise ValueError(
                f"effective_batch_size is {t.effective_batch_size}, but "
                f"{t.per_device_train_batch_size} per device × {t.gradient_accumulation_steps} "
                f"accumulation × {self.parallel.ranks} ranks is {product}"
            )
        return self

    @model_validator(mode="after")
    def _rows_suit_the_stage(self) -> Self:
        stage, given = self.method.stage, self.data.data_format
        wanted = STAGE_FORMAT.get(stage)
        if given != "auto" and given != wanted and (wanted or given in STAGE_FORMAT.values()):
            suits = [name for name, form in STAGE_FORMAT.items() if form == given] or ["sft"]
            raise ValueError(
                f"stage={stage} cannot read rows in the format `{given}`: "
                f"set stage={' or '.join(suits)}, or give other rows"
            )
        if stage == "pretrain" and self.data.system is not None:
            raise ValueError(
                "system is not used by stage=pretrain, which has no turns: leave it out"
            )
        return self

    @model_validator(mode="after")
    def _evaluates_in_time(self) -> Self:
        training = self.training
        metric = training.metric_for_best_model
        if not self.data.evaluates:
            for name in ("eval_steps", "metric_for_best_model"):
                if getattr(training, name) is not None:
                    raise ValueError(
                        f"{name} needs rows to evaluate on: set eval_split=0.1 or eval_data"
                    )
            return self
        known = METRICS[self.method.stage]
        own = self.plugins.metric is not None and (metric or "").startswith("eval_")
        if metric is not None and metric not in known and not own:
            raise ValueError(
                f"metric_for_best_model={metric} is not measured by stage={self.method.stage}: "
                f"it has {', '.join(known)}"
            )
        every = training.eval_steps
        if every is not None and training.save_steps % every:
            next_save = -(-training.save_steps // every) * every
            raise ValueError(
                f"save_steps {training.save_steps} is no multiple of eval_steps {every}, "
                f"so a best model could go unsaved: set save_steps={next_save}"
            )
        return self


TABLES: Mapping[str, type[Table]] = {
    "model": ModelTable,
    "data": DataTable,
    "method": MethodTable,
    "parallel": ParallelTable,
    "training": TrainingTable,
    "plugins": PluginTable,
}

SETTINGS: Mapping[str, str] = {
    field: table for table, cls in TABLES.items() for field in cls.model_fields
}
"""Setting name → table it lives in; names are unique over all tables."""


def loads(text: str) -> Spec:
    """Read spec.toml.

    Raises SpecError naming the first wrong value.
    """
    try:
        return Spec.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise SpecError("; ".join(_sentence(e) for e in error.errors())) from None
    except ValueError as error:
        raise SpecError(f"not valid TOML: {why(error)}") from None
    except RecursionError:
        raise SpecError("not valid TOML: nested too deeply") from None


def _sentence(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        key = str(error["loc"][-1])
        known = [*SETTINGS, "version", *TABLES]
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        return f"unknown key `{where}`" + (f": did you mean `{near[0]}`?" if near else "")
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def dumps(spec: Spec, reasons: Mapping[str, str] | None = None) -> str:
    """spec.toml, each value with its reason as a comment; None is left out."""
    document = tomlkit.document()
    document.add("version", tomlkit.item(spec.version))
    for name in TABLES:
        if name == "plugins" and not spec.plugins.named:
            continue
        table = tomlkit.table()
        for key, value in getattr(spec, name).model_dump().items():
            if value is None:
                continue
            item = tomlkit.item(list(value) if isinstance(value, tuple) else value)
            if reasons and key in reasons:
                item.comment(printable(reasons[key]))
            table.add(key, item)
        document.add(name, table)
    return tomlkit.dumps(document)
