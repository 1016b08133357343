"""What the wizard says of a malformed file is what the engine makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import sets
from engine.data import ChatTokenizer
from engine.examples import maker
from engine.failure import RunError
from engine.rows.sources import Source
from engine.spec import DataTable
from engine.tokenise import Counts, Maker
from tests.fakes.data.files import Case, by_kind
from tests.fakes.tiny.make import TEMPLATE, tokenizer

pytestmark = pytest.mark.engine
KINDS = by_kind()


@pytest.fixture(scope="module")
def chat() -> ChatTokenizer:
    return ChatTokenizer(tokenizer(), TEMPLATE, 512)


@pytest.mark.parametrize("kind", KINDS)
def test_f07_malformed_files_are_prepared_or_refused_as_they_should(
    kind: str, chat: ChatTokenizer, tmp_path: Path
) -> None:
    for case in KINDS[kind]:
        path = tmp_path / f"data{case.suffix}"
        path.write_bytes(case.content)
        made = chat if case.stage == "sft" else maker(case.stage, tokenizer(), None, 512)
        check(case, path, made)


def check(case: Case, path: Path, made: Maker) -> None:
    table = DataTable(data=str(path), max_dropped_percent=99)
    source, work, whole = Source(path=path), sets.work_for(table, case.stage, made), Counts()
    try:
        for batch in sets.set_batches(source, work):
            whole.add(batch.counts)
        named = sets.dropped_rows(source, whole)
        said = sets.refusal(whole, table, [source], named, work.reading)
    except RunError as error:
        said = f"{error.failure}: {error}"
    if case.kept is None:
        assert said is not None, case.name
        assert case.refused.replace("the file is empty", "has no rows") in said, case.name
        assert "\n" not in said, case.name
        assert not said.startswith(("unknown", "host_oom", "disk_full")), case.name
        return
    assert said is None, case.name
    assert whole.kept == case.kept, case.name
    assert whole.rows == case.kept + len(case.dropped), case.name
    reasons = dict(whole.dropped)
    for line, reason in case.dropped.items():
        assert reason in reasons[line], case.name
