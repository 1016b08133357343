"""Only answers are learnt, and each with the token that ends it."""

from __future__ import annotations

import pytest

from engine.data import IGNORED, ChatTokenizer, Tokens, chat_template
from engine.failure import RunError
from engine.rows.formats import format_of, read
from engine.rows.values import Conversation, RowError
from tests.fakes.tiny.make import IM_END, TEMPLATE, tokenizer

pytestmark = pytest.mark.engine

FORGETS_THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and loop.last %}<think></think>{% endif %}"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Like Qwen3's: the beginning of a conversation reads otherwise than the whole."""
SHOUTS = FORGETS_THOUGHTS.replace("{{ m['content'] }}", "{{ m['content'] | upper }}")
NO_END = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
REFUSES = "{{ raise_exception('roles must alternate') }}"


def tokens(*turns: str, template: str = TEMPLATE, max_length: int = 500) -> Tokens:
    """Turns alternate, the user's first."""
    roles = ("user", "assistant")
    row = {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]}
    chat = ChatTokenizer(tokenizer(), template, max_length)
    found = read(row, format_of(row))
    assert isinstance(found, Conversation)
    return chat.tokens(found)


def learnt(said: Tokens) -> str:
    kept = [label for label in said.labels if label != IGNORED]
    return str(tokenizer().decode(kept))


def test_every_answer_is_learnt_with_its_end_and_nothing_else() -> None:
    said = tokens("q", "first é😀", "r", "second")

    assert learnt(said) == "first é😀<|im_end|>second<|im_end|>"
    assert tokenizer().decode(said.input_ids).startswith("<|im_start|>user\nq<|im_end|>\n")
    assert [a for a, b in zip(said.labels, said.input_ids, strict=True) if a not in (b, -100)] == []


def test_a_template_that_rewrites_earlier_turns_is_followed() -> None:
    said = tokens("q", "first", "r", "second", template=FORGETS_THOUGHTS)

    assert learnt(said) == "first<|im_end|><think></think>second<|im_end|>"


def test_a_template_that_changes_an_answer_drops_the_row() -> None:
    said = tokens("Q", "ABC", "R", "DEF", template=SHOUTS)
    assert learnt(said) == "ABC<|im_end|><think></think>DEF<|im_end|>"

    with pytest.raises(RowError, match="rewrites turn 2"):
        tokens("q", "abc", "r", "def", template=SHOUTS)


def test_a_template_without_an_end_gets_the_tokenizers() -> None:
    said = tokens("q", "a", template=NO_END)

    assert said.input_ids[-1] == said.labels[-1] == IM_END
    assert learnt(said) == "a<|im_end|>"


def test_a_special_token_in_a_rows_text_stays_text() -> None:
    said = tokens("end <|im_end|> now", "also <|im_start|>user <|im_end|> here")

    assert said.input_ids.count(IM_END) == 2
    assert learnt(said) == "also <|im_start|>user <|im_end|> here<|im_end|>"
    assert "end <|im_end|> now" in tokenizer().decode(said.input_ids)


@pytest.mark.parametrize(
    "text", ["\ufdd0 0\ufdd0<|im_end|>", "\x1b[31m[/markup] $(x) `y`", " \n\n lead", "a\u2028b\x00"]
)
def test_hostile_text_reaches_the_tokens_unchanged(text: str) -> None:
    assert text in tokenizer().decode(tokens(text, text + ".").input_ids)
    assert learnt(tokens("q", text + ".")) == text + ".<|im_end|>"


def test_a_refusing_template_is_the_rows_reason() -> None:
    with pytest.raises(RowError, match="roles must alternate"):
        tokens("q", "a", template=REFUSES)


def test_rows_are_cut_at_the_end_and_dropped_when_no_answer_is_left() -> None:
    whole = tokens("q", "a long answer")

    cut = tokens("q", "a long answer", max_length=len(whole.input_ids) - 5)
    assert cut.cut
    assert cut.input_ids == whole.input_ids[:-5]
    assert not whole.cut
    with pytest.raises(RowError, match="no answer within the first 8 tokens"):
        tokens("q", "a", max_length=8)


def test_f10_a_model_without_a_template_is_told_the_remedy() -> None:
    with pytest.raises(RunError, match="set template=chatml"):
        chat_template(None, tokenizer(template=None))
    with pytest.raises(RunError, match="not one of chatml"):
        chat_template("../secret", tokenizer())


def test_chatml_ends_turns_with_a_token_the_tokenizer_has() -> None:
    class Foreign:
        eos_token, eos_token_id, chat_template = "</s>", 2, None
        added_tokens_decoder = {2: "</s>"}  # noqa: RUF012

    assert "'</s>'" in chat_template("chatml", Foreign())  # type: ignore[arg-type]
    assert chat_template("chatml", tokenizer()).count("<|im_end|>") == 1


def test_the_shipped_chatml_reads_like_the_models_own() -> None:
    shipped = chat_template("chatml", tokenizer(template=None))

    assert tokens("q", "a", "b", "c", template=shipped) == tokens("q", "a", "b", "c")
