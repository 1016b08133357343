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
from engine.tokenise import Counts
from tests.fakes.data.files import Case, cases
from tests.fakes.tiny.make import TEMPLATE, tokenizer

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def chat() -> ChatTokenizer:
    return ChatTokenizer(tokenizer(), TEMPLATE, 512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("malformed")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_malformed_file_is_prepared_or_refused_as_it_should(
    case: Case, chat: ChatTokenizer, folder: Path
) -> None:
    path = folder / f"data{case.suffix}"
    path.write_bytes(case.content)
    table = DataTable(data=str(path), max_dropped_percent=99)
    made = chat if case.stage == "sft" else maker(case.stage, tokenizer(), None, 512)
    source, work, whole = Source(path=path), sets.work_for(table, case.stage, made), Counts()
    try:
        for batch in sets.set_batches(source, work):
            whole.add(batch.counts)
        named = sets.dropped_rows(source, whole)
        said = sets.refusal(whole, table, [source], named, work.reading)
    except RunError as error:
        said = f"{error.failure}: {error}"
    if case.kept is None:
        assert said is not None
        assert case.refused.replace("the file is empty", "has no rows") in said
        assert "\n" not in said
        assert not said.startswith(("unknown", "host_oom", "disk_full"))
        return
    assert said is None
    assert whole.kept == case.kept
    assert whole.rows == case.kept + len(case.dropped)
    reasons = dict(whole.dropped)
    assert all(reason in reasons[line] for line, reason in case.dropped.items())
