"""Levers: settings that most runs leave as they are, each with what it would be changed for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.settings import setting_info
from engine.spec import LOWEST_RATE, PREFETCHED
from wizard.planner.ledger import Ledger

USUAL: Mapping[str, str] = {
    "packing": "rows keep their own place in a batch; true wastes no token on padding",
    "padding_free": "rows are padded to the longest of their batch; true joins them",
    "group_by_length": "rows come in random order; true pads less where lengths differ",
    "adam_beta1": "Adam's own",
    "adam_beta2": "Adam's own; 0.95 follows large batches faster",
    "adam_epsilon": "Adam's own",
    "neftune_noise_alpha": "no noise; 5 can make answers freer when rows are few",
    "activation_offloading": "activations stay on the device, which is faster",
    "use_liger_kernel": "the library's own layers; true needs liger-kernel and is faster",
    "torch_compile": "starts at once; true pays where a run has hours of equal steps",
    "tf32": "torch decides how float32 matrices are multiplied",
    "dataloader_num_workers": "rows are tokens already: a batch is made in no time",
    "report_to": "`tunewright watch` shows a run; a tracker can be told too",
}
"""Setting → why nearly every run has the value that the spec has for it."""
DEFAULTS: Mapping[str, Any] = {name: setting_info(name).default for name in USUAL}
OWN_CODE: Mapping[str, str] = {
    "loss": "the stage's own loss",
    "metric": "the stage's own metrics",
    "callback": "nothing is hooked in",
    "preprocessor": "rows are read as they are",
    "trainer": "the library's trainer of this stage",
}
"""Plug-in → what stands in its place."""


IN_BLOCKS = {
    "packing": "text is packed into full blocks as it is; this would pack rows of questions",
    "padding_free": "blocks are all of one length: nothing is padded",
    "group_by_length": "blocks are all of one length",
}
"""The same where plain text is learnt."""


def decide_levers(ledger: Ledger) -> None:
    """Every setting that is nobody else's to decide."""
    in_blocks = ledger.decisions["stage"].value == "pretrain"
    for name, usual in USUAL.items():
        reason = IN_BLOCKS.get(name, usual) if in_blocks else usual
        ledger.decide(name, DEFAULTS[name], reason)
    for name, reason in OWN_CODE.items():
        ledger.decide(name, None, reason)
    _decide_dependent(ledger)


def _decide_dependent(ledger: Ledger) -> None:
    """Settings that another one must be chosen for."""
    lowest = ledger.decisions["lr_scheduler_type"].value == "cosine_with_min_lr"
    reason = "a tenth of the peak" if lowest else "unused by this schedule"
    ledger.decide("min_lr_rate", LOWEST_RATE if lowest else None, reason)
    workers = ledger.decisions["dataloader_num_workers"].value
    reason = "one is used while the next is made" if workers else "no process makes batches ahead"
    ledger.decide("dataloader_prefetch_factor", PREFETCHED if workers else None, reason)
