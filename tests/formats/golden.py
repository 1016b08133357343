"""Golden exports, presets × machines × formats: `python -m tests.formats.golden` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine.methods import STAGE_FORMAT
from tests.fakes.machines import VERSIONS
from tests.formats.planned import job_of, target
from wizard import __version__, api, presets
from wizard.answers import Answers
from wizard.facts import Dataset, Facts
from wizard.formats.exporting import export
from wizard.formats.jobs import Job
from wizard.machines import several
from wizard.planner import plans
from wizard.probe.machine import find
from wizard.probe.model import read_model

FOLDER = Path(__file__).parent / "golden"
CASES = (
    ("sft-lora-8b-24gb", "1x NVIDIA GeForce RTX 4090", "bash", 1),
    ("sft-full-32b-8x80gb", "8xH100-SXM", "sbatch", 1),
    ("sft-full-8b-8x40gb", "8xA100-SXM-40GB", "sbatch", 2),
    ("pretrain-full-32b-8x80gb", "8xH100-SXM", "torchrun", 2),
    ("sft-lora-72b-8x80gb", "8xH100-SXM", "kubernetes", 2),
    ("sft-qlora-32b-48gb", "L40S", "skypilot", 1),
    ("sft-full-8b-4x24gb", "4xA10G", "swift", 1),
    ("dpo-qlora-8b-24gb", "1x NVIDIA GeForce RTX 4090", "swift", 1),
    ("sft-qlora-14b-16gb", "T4-Colab", "llamafactory", 1),
    ("dpo-full-8b-8x80gb", "8xH100-SXM", "llamafactory", 1),
    ("sft-lora-8b-2x24gb", "2xRTX3090-NVLink", "axolotl", 1),
    ("kto-lora-8b-48gb", "L40S", "axolotl", 1),
    ("sft-full-8b-8x40gb", "8xA100-SXM-40GB", "accelerate", 1),
)


def made() -> Iterator[tuple[str, str]]:
    """(name of the file, its text) of every golden export."""
    for preset, machine, kind, nodes in CASES:
        job = _job(preset, machine, nodes)
        done = export(job, target(kind, nodes))
        for name, text in done.files.items():
            short = _without_body(text) if name == "run.sh" else _without_script(text, job)
            yield f"{preset}.{name}", short.replace(f"tunewright {__version__}", "tunewright X.Y.Z")


def _without_script(text: str, job: Job) -> str:
    """run.sh stands in no other golden file: it has one of its own."""
    for indent in ("", "  ", "    "):
        lines = (f"{indent}{line}".rstrip(" ") for line in job.run_sh.splitlines(keepends=True))
        indented = "".join(line if line.strip() else "\n" for line in lines)
        text = text.replace(indented, f"{indent}<run.sh>\n")
    assert "MAX_RESTARTS" not in text
    return text


def _without_body(text: str) -> str:
    """What follows from the plan; the rest is the template."""
    begin, _, rest = text.partition("say() {")
    _, keep, rest = rest.partition("keep spec.toml")
    specs = rest.partition("# A package named engine")[0]
    assert keep
    return f"{begin}<the template>\n\n{keep}{specs}<the template>\n"


def _job(preset: str, machine: str, nodes: int) -> Job:
    loaded = presets.load(preset)
    answers = api.with_preset(Answers(), loaded)
    assert answers.model is not None
    form = STAGE_FORMAT.get(loaded.settings.get("stage", "sft"), "messages")
    rows = Dataset(
        path="/data/rows.jsonl",
        format=form,
        rows=5000,
        longest_row_chars=3000,
        longest_row_bytes=3000,
        longest_row_tokens=1500,
        total_chars=15_000_000,
        most_turns=2,
    )
    there = find(machine)
    software = replace(there.software, versions=VERSIONS)
    known = replace(there, software=software, dataset=rows, model=read_model(answers.model))
    return _planned(known, answers, preset, nodes)


def _planned(known: Facts, answers: Answers, preset: str, nodes: int) -> Job:
    everything = known
    if nodes > 1:
        everything = several(known, nodes)
        answers = replace(answers, num_devices=len(everything.accelerators))
    plan = plans(everything, answers)[0]
    return job_of(plan, name=f"{preset}-1", nodes=nodes, known=known)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, text in made():
        (FOLDER / name).write_text(text, encoding="utf-8")
