"""How a run learns: rate, passes, adapter and rhythm, each with the publication it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wizard.facts import Facts
from wizard.planner.ledger import Ledger
from wizard.planner.simulated import ADAPTED_EXPERTS
from wizard.planner.stage import stage_of, unit_of
from wizard.wording import counted

QLORA = "QLoRA, arXiv:2305.14314"
ALPACA = "Stanford Alpaca: 52,000 rows, 7B, github.com/tatsu-lab/stanford_alpaca"
TULU = "Tülu 2, arXiv:2311.10702: 326,000 rows, 7B to 70B"
SMOLLM = "alignment-handbook, recipes/smollm2/sft: 3e-4 for 1.7B at 128 rows a step"
LORA_LEARNS = "LoRA Learns Less and Forgets Less, arXiv:2405.09673"
LORA_REGRET = "LoRA Without Regret, Thinking Machines Lab 2025"
ZEPHYR = "alignment-handbook, recipes/zephyr-7b-beta/dpo: 5e-7 for all weights, 5e-6 for QLoRA"
KTO_DOCS = "TRL's documentation of KTO: between 5e-7 and 5e-6"
REWARD_DOCS = "TRL's RewardConfig: 1e-4; a tenth of it for all weights"
STAGE_RATES: Mapping[str, tuple[float, float, str, str]] = {
    "dpo": (5e-7, 5e-6, "preferences move a model that is already trained, a little", ZEPHYR),
    "kto": (5e-7, 5e-6, "labels move a model that is already trained, a little", KTO_DOCS),
    "reward": (1e-5, 1e-4, "a new head is learnt beside what the model knows", REWARD_DOCS),
}
"""Stage → rate of full tuning, rate of an adapter, reason, source."""
DEFAULTS = "Hugging Face's TrainingArguments"

MANY_ROWS = 50_000
"""From here on two passes show the model enough."""
MOST_ROWS = 1_000_000
"""From here on one does."""
SMALL, LARGE = 3 * 10**9, 20 * 10**9
"""Parameters below and above which the usual rate is too low or too high."""
RANK, RANK_OF_MANY = 16, 64
SAVE_SECONDS = 1800
"""What may be lost is half an hour's work."""


EVERYTHING, ATTENTION = "all-linear", "q_proj,k_proj,v_proj,o_proj"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A peak learning rate with its reason."""

    value: float
    reason: str
    source: str
    changes_with: str


def decide_method(ledger: Ledger, method: str, facts: Facts) -> None:
    """The settings of the table `method` other than the method itself."""
    unused = "unused: all weights are trained"
    full = method == "full"
    rows = facts.dataset.rows if facts.dataset else 0
    rank = RANK_OF_MANY if rows >= MANY_ROWS else RANK
    unit = unit_of(stage_of(facts, ledger.answers))
    enough = f"{counted(rows, unit)} hold more than a small adapter keeps"
    if rank == RANK:
        enough = f"{counted(rows, unit)}: room for style, format and facts of that many"
    ledger.decide(
        "lora_rank",
        rank,
        unused if full else enough,
        changes_with="" if full else f"{MANY_ROWS:,} rows or more: {RANK_OF_MANY}",
        source="" if full else f"{LORA_REGRET}; {QLORA} takes 64",
    )
    chosen = int(ledger.decisions["lora_rank"].value)
    ledger.decide(
        "lora_alpha",
        2 * chosen,
        unused if full else "twice the rank",
        changes_with="" if full else "another lora_rank",
        source="" if full else LORA_LEARNS,
    )
    ledger.decide("lora_dropout", 0.0, unused if full else "costs memory and seldom helps")
    if not full and facts.model and facts.model.architecture in ADAPTED_EXPERTS:
        ledger.decide(
            "target_modules",
            ATTENTION,
            "attention alone: on routed experts an adapter has its factors once per expert, and "
            "PEFT makes a merged copy of a layer's experts in every pass",
            {EVERYTHING: "learns more, where that much memory and time is there"},
            source="peft 0.21, ParamWrapper",
        )
        return
    ledger.decide(
        "target_modules",
        EVERYTHING,
        unused if full else "adapters on every linear layer learn more than on attention alone",
        source="" if full else f"{QLORA}; {LORA_REGRET}",
    )


def decide_schedule(ledger: Ledger, facts: Facts, method: str, stage: str) -> None:
    """How long and at which rate, before the batch is known."""
    rows = facts.dataset.rows if facts.dataset else 0
    epochs, said, source = _epochs(rows)
    ledger.decide(
        "num_train_epochs",
        epochs,
        f"{counted(rows, unit_of(stage))}: {said}",
        changes_with=f"{MANY_ROWS:,} rows or more: two passes; {MOST_ROWS:,}: one",
        source=source,
    )
    ledger.decide("max_steps", -1, "the epochs decide")
    rate = stage_rate(stage, method)
    if rate is None:
        rate = learning_rate(method, facts.model.parameters if facts.model else None)
    ledger.decide(
        "learning_rate",
        rate.value,
        rate.reason,
        changes_with=rate.changes_with,
        source=rate.source,
    )
    ledger.decide("lr_scheduler_type", "cosine", "falls slowly at first and ends near zero")
    ledger.decide(
        "warmup_ratio",
        0.03,
        "the first steps are small while Adam's averages settle",
        source=f"{ALPACA}; {TULU}",
    )
    ledger.decide(
        "weight_decay", 0.0, "short runs on a trained model do not need it", source=ALPACA
    )
    ledger.decide(
        "max_grad_norm", 1.0, "one odd batch cannot throw the weights off", source=DEFAULTS
    )
    ledger.decide("seed", 42, "a fixed seed makes the run repeatable")
    ledger.decide("save_total_limit", 2, "the newest, and one in case it is damaged")


def _epochs(rows: int) -> tuple[float, str, str]:
    if rows >= MOST_ROWS:
        return 1.0, "one pass is enough", ""
    if rows >= MANY_ROWS:
        return 2.0, "seen twice", TULU
    return 3.0, "seen three times", ALPACA


def learning_rate(method: str, parameters: int | None) -> Rate:
    """The usual peak rate for a method and a size; of unknown size, that of 7B."""
    size = parameters or 7 * 10**9
    if method != "full":
        return _adapter_rate(size)
    others = {1e-4: "less than 3 B parameters", 2e-5: "3 to 20 B", 1e-5: "more than 20 B"}
    if size > LARGE:
        value, reason, source = 1e-5, "all weights of a large model move", TULU
    elif size < SMALL:
        value, reason, source = 1e-4, "small models take a higher rate, small steps a lower", SMOLLM
    else:
        value, reason, source = 2e-5, "the usual rate when all weights move", ALPACA
    changes = "; ".join(f"{size}: {rate:g}" for rate, size in others.items() if rate != value)
    return Rate(value=value, reason=reason, source=source, changes_with=changes)


def stage_rate(stage: str, method: str) -> Rate | None:
    """The usual peak rate of a stage that has its own; None where answers or text are learnt."""
    if stage not in STAGE_RATES:
        return None
    full, adapter, reason, source = STAGE_RATES[stage]
    value, other = (full, adapter) if method == "full" else (adapter, full)
    return Rate(
        value=value,
        reason=reason,
        source=source,
        changes_with=f"{'an adapter' if method == 'full' else 'all weights'}: {other:g}",
    )


def _adapter_rate(size: int) -> Rate:
    if size > LARGE:
        return Rate(
            value=1e-4,
            reason="adapters on a large model",
            source=QLORA,
            changes_with="20 B parameters or less: 2e-4",
        )
    return Rate(
        value=2e-4,
        reason="adapters take ten times the rate of full tuning",
        source=f"{QLORA}; {LORA_REGRET}",
        changes_with="more than 20 B parameters: 1e-4",
    )


def decide_rhythm(ledger: Ledger, steps: int | None, step_seconds: float | None) -> None:
    """How often the run logs and saves."""
    every = 1 if steps is None or steps <= 2000 else 10
    ledger.decide(
        "logging_steps",
        every,
        f"a curve of {counted(steps, 'step') if steps else 'an unknown number of steps'}",
    )
    quarter = 500 if steps is None else max(1, min(500, math.ceil(steps / 4)))
    reason = "four checkpoints or more, at most 500 steps apart"
    if step_seconds and quarter * step_seconds > SAVE_SECONDS:
        quarter = max(1, int(SAVE_SECONDS / step_seconds))
        reason = "about half an hour: no more than that is lost"
    between = int(ledger.answers.fixed.get("eval_steps") or 1)
    quarter = math.ceil(quarter / between) * between
    ledger.decide(
        "save_steps",
        quarter,
        reason,
        changes_with="slower steps: closer together",
        source=DEFAULTS if quarter == 500 else "",
    )
