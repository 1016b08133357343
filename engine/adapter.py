"""Adapter: the few parameters trained beside frozen weights, new or gone on with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.failure import RunError
from engine.record import read_json
from engine.spec import ZERO_STAGES, Spec
from engine.theirs import quoted

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PreTrainedModel

TASKS = {"reward": "SEQ_CLS"}
"""Stage → what PEFT calls its model; the others write text."""
SCORE = "score"
"""The head of a reward model, which has no trained weights to begin with."""


def wrapped(spec: Spec, model: PreTrainedModel, revision: str | None) -> tuple[Any, Any]:
    """(model, configuration of a new adapter): the model has the adapter that is gone on with.

    Raises RunError (bad_spec) when the adapter there is does not fit the model.
    """
    if spec.method.method == "full":
        return model, None
    check_modules(spec, model)
    if spec.method.adapter is None:
        return model, new_config(spec, revision)
    return _continued(spec, model, Path(spec.method.adapter).expanduser()), None


def new_config(spec: Spec, revision: str | None) -> Any:
    """The LoRA adapter of a spec."""
    from peft import LoraConfig

    method = spec.method
    whole = module_names(method.modules_to_save)
    if method.stage == "reward":
        whole = [*whole, SCORE]
    return LoraConfig(
        r=method.lora_rank,
        lora_alpha=method.lora_alpha,
        lora_dropout=method.lora_dropout,
        target_modules=_targets(spec),
        use_rslora=method.use_rslora,
        use_dora=method.use_dora,
        init_lora_weights=_initial(spec),
        modules_to_save=whole or None,
        # An output head that shares the embedding's weights stays one with it.
        ensure_weight_tying=bool(module_names(method.modules_to_save)),
        bias="none",
        task_type=_task(spec),
        revision=revision,
    )


def _targets(spec: Spec) -> str | list[str]:
    names = spec.method.target_modules
    return names if names == "all-linear" else module_names(names)


def _initial(spec: Spec) -> Any:
    start = spec.method.init_lora_weights
    return True if start == "default" else start


def _task(spec: Spec) -> str:
    return TASKS.get(spec.method.stage, "CAUSAL_LM")


def module_names(text: str | None) -> list[str]:
    """The module names of a setting, one by one."""
    return [part.strip() for part in text.split(",")] if text else []


def check_modules(spec: Spec, model: Module) -> None:
    """Refuse modules that the model does not have: each name must find one.

    Raises RunError (bad_spec).
    """
    modules = [name for name, _ in model.named_modules()]
    method = spec.method
    targets = [] if method.target_modules == "all-linear" else module_names(method.target_modules)
    asked = {"target_modules": targets, "modules_to_save": module_names(method.modules_to_save)}
    for setting, names in asked.items():
        for wanted in names:
            if not any(f".{name}".endswith(f".{wanted}") for name in modules):
                raise RunError(
                    "bad_spec",
                    f"{setting}: the model has no `{wanted}`; {_those_there(setting, model)}",
                )


def _those_there(setting: str, model: Module) -> str:
    from torch.nn import Embedding, Linear

    targets = setting == "target_modules"
    kinds = (Linear,) if targets else (Linear, Embedding)
    there = {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, kinds)}
    which = "linear ones are" if targets else "linear ones and embeddings are"
    return f"{which} {', '.join(sorted(there))}"


def check_folder(spec: Spec) -> None:
    """Refuse an adapter to go on with that is not there, or is not what the spec says of it.

    Raises RunError (bad_spec).
    """
    if spec.method.adapter is None:
        return
    folder = Path(spec.method.adapter).expanduser()
    config = read_json(folder / "adapter_config.json")
    if not config or not (folder / "adapter_model.safetensors").is_file():
        raise RunError(
            "bad_spec",
            f"adapter={folder}: no adapter there (adapter_config.json and "
            f"adapter_model.safetensors){_instead(folder)}",
        )
    if config.get("peft_type") != "LORA":
        raise RunError("bad_spec", f"adapter={folder}: is {config.get('peft_type')}, not LORA")
    task = config.get("task_type") or "CAUSAL_LM"
    if task != _task(spec):
        raise RunError(
            "bad_spec",
            f"adapter={folder}: was made for {task}, and stage={spec.method.stage} trains "
            f"{_task(spec)}",
        )
    if config.get("init_lora_weights") not in (True, False, "gaussian"):
        raise RunError(
            "bad_spec",
            f"adapter={folder}: belongs to weights that init_lora_weights="
            f"{config.get('init_lora_weights')} has changed; save it as a plain adapter first",
        )
    _check_sizes(spec, folder, config)


INSTEAD = (
    ("global_step*", "DeepSpeed's shards: `resume` of the run that made them goes on from them"),
    ("pytorch_model_fsdp*", "FSDP's shards: `resume` of the run that made them goes on from them"),
    ("*.distcp", "FSDP's shards: `resume` of the run that made them goes on from them"),
    ("model*.safetensors", "a whole model: name it as `model` instead"),
    ("pytorch_model*.bin", "a whole model in pickle files, which are not read"),
    ("adapter_model.bin", "an adapter in a pickle file, which is not read: save it anew"),
    ("adapter_model.safetensors", "an adapter without its adapter_config.json"),
    ("trainer_state.json", "what a trainer keeps beside weights, without any"),
)
"""Files of a folder that holds no adapter → what it holds, the most telling first."""


def _instead(folder: Path) -> str:
    """What a folder holds in place of an adapter."""
    found = (words for pattern, words in INSTEAD if next(folder.glob(pattern), None))
    first = next(found, None)
    return f"; it holds {first}" if first else ""


def other_base(spec: Spec) -> str | None:
    """What to know of an adapter that was made for a model of another name."""
    if spec.method.adapter is None:
        return None
    folder = Path(spec.method.adapter).expanduser()
    name = read_json(folder / "adapter_config.json").get("base_model_name_or_path")
    if not isinstance(name, str) or _last(name) == _last(spec.model.model):
        return None
    return (
        f"adapter={folder}: was made for {name}, and this run trains {spec.model.model}: if those "
        "are other weights of the same sizes, it begins with corrections that do not belong to them"
    )


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()


def _check_sizes(spec: Spec, folder: Path, config: dict[str, Any]) -> None:
    method = spec.method
    there = {
        "lora_rank": (config.get("r"), method.lora_rank),
        "lora_alpha": (config.get("lora_alpha"), method.lora_alpha),
        "use_rslora": (bool(config.get("use_rslora")), method.use_rslora),
        "use_dora": (bool(config.get("use_dora")), method.use_dora),
    }
    for name, (has, said) in there.items():
        same = math.isclose(has, said) if isinstance(has, int | float) else has == said
        if not same:
            raise RunError(
                "bad_spec",
                f"adapter={folder}: has {name}={str(has).lower()}, and the spec says "
                f"{str(said).lower()}: set {name}={str(has).lower()}",
            )


def _continued(spec: Spec, model: PreTrainedModel, folder: Path) -> Any:
    """The model with the adapter of a folder on it, which is trained further."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    check_folder(spec)
    sharded = spec.parallel.strategy == "zero3"
    try:
        # ZeRO-3 gathers parameters of one number format; elsewhere an adapter is float32.
        found = PeftModel.from_pretrained(
            model, str(folder), is_trainable=True, autocast_adapter_dtype=not sharded
        )
    except RuntimeError as error:
        said = next((line for line in str(error).splitlines() if "mismatch" in line), error)
        raise RunError(
            "bad_spec",
            f"adapter={folder}: was made for a model of other sizes than {spec.model.model} "
            f"({quoted(said)})",
        ) from None
    with safe_open(str(folder / "adapter_model.safetensors"), "pt") as file:
        there = set(file.keys())
    wanted = set(get_peft_model_state_dict(found))
    if wanted - there:
        raise RunError(
            "bad_spec",
            f"adapter={folder}: was made for another model than {spec.model.model}: it lacks "
            f"{len(wanted - there)} of {len(wanted)} weights, such as {min(wanted - there)}",
        )
    found.peft_config["default"].lora_dropout = spec.method.lora_dropout
    return found


def fit_vocabulary(spec: Spec, model: PreTrainedModel, tokenizer: Any) -> None:
    """Give every token of the tokenizer an embedding: new ones start as the mean of the others.

    Raises RunError (bad_spec) where an adapter could not carry them.
    """
    embedding: Any = model.get_input_embeddings().weight
    rows = getattr(embedding, "ds_shape", embedding.shape)[0]
    if len(tokenizer) <= rows:
        return
    if spec.method.method != "full":
        raise RunError(
            "bad_spec",
            f"{spec.model.model}: its tokenizer has {len(tokenizer)} tokens and its embedding "
            f"{rows}; an adapter cannot carry the new ones: set method=full, or resize the model",
        )
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=8)


def keep_precise(spec: Spec, model: PreTrainedModel) -> None:
    """Hold a 4-bit model's adapter in float32 where bfloat16 arithmetic is not asked for.

    TRL makes it bfloat16, which float16's gradient scaler cannot handle.
    """
    if spec.method.method != "qlora" or spec.model.dtype == "bfloat16":
        return
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def leave_casts_to_autocast(spec: Spec, model: Module) -> None:
    """Give the adapter its inputs as they are: autocast brings them and float32 weights together.

    PEFT would first copy each input to float32, which autocast then rounds back: the same numbers
    to the last bit, with another copy of every input kept for the backward pass. DoRA also
    multiplies outside of what autocast looks after, and there are no casts where it is off.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    if spec.model.dtype == "float32" or spec.method.use_dora:
        return
    if spec.parallel.strategy in ZERO_STAGES:  # DeepSpeed computes without autocast
        return
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            module.cast_input_dtype_enabled = False


def takes_from_weights(spec: Spec) -> bool:
    """Whether the adapter starts as a part of the weights, which then lack that part."""
    return spec.method.init_lora_weights not in ("default", "gaussian")


def keep_start(spec: Spec, model: Any, run: Path) -> None:
    """Keep the adapter as it starts, where the trained one is only told apart by it."""
    if takes_from_weights(spec):
        model.save_pretrained(str(start_folder(run)))


def start_folder(run: Path) -> Path:
    """Where the adapter is kept as it started."""
    return run / "adapter_start"


def save_plain(model: Any, folder: Path, run: Path) -> None:
    """Save an adapter that took from the weights as one of twice the rank that did not.

    The base model, as anybody has it, then gives the tuned one; see "PiSSA", section 3,
    https://arxiv.org/abs/2404.02948.
    """
    model.save_pretrained(
        str(folder), path_initial_model_for_weight_conversion=str(start_folder(run))
    )
