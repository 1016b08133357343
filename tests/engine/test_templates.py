"""The loss mask on the templates of real families, as the installed trl brings them.

What is learnt is compared with the marks that trl's own training templates carry: ours are found
without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from engine.data import IGNORED, ChatTokenizer, Tokens
from engine.rows.formats import format_of, read
from engine.rows.values import Conversation, RowError

pytestmark = pytest.mark.engine

FOUND = find_spec("trl")
FOLDER = Path(str(FOUND.origin if FOUND else "")).parent / "chat_templates"
SPECIAL = re.compile(
    r"<\|[^|<>\s]+\|>|<｜[^｜]+｜>|\[/?INST\]|<(?:start|end)_of_turn>|</s>|<bos>|\[gMASK\]|<sop>"
)
"""Special tokens of the families, as their templates write them; the fake tokenizer knows them."""
EOS: Mapping[str, str] = {
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "qwen3_5_think": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "llava_next": "</s>",  # Mistral's template
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "phi3": "<|endoftext|>",
    "phi3_5": "<|endoftext|>",
    "deepseekv3": "<｜end▁of▁sentence｜>",
    "deepseek_r1_distill": "<｜end▁of▁sentence｜>",
    "glm4moe": "<|endoftext|>",
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "gptoss": "<|return|>",
}
"""Family → the token its tokenizer calls the end."""
STOPS: Mapping[str, str] = {"phi3": "<|end|>", "phi3_5": "<|end|>", "glm4moe": "<|user|>"}
"""Where an answer in the middle ends by another token than the last one."""
CALLING = {
    "messages": [
        {"role": "user", "content": "q1"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "look", "arguments": '{"at": 1}'}}],
        },
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "it is 42"},
        {"role": "user", "content": "q2"},
        {"role": "assistant", "content": "second"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "looks",
                "parameters": {
                    "type": "object",
                    "properties": {"at": {"type": "integer", "description": "where"}},
                },
            },
        }
    ],
}


def tokenizer(template: str, eos: str) -> Any:
    """A token for each byte, and the template's own special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(sorted({eos, "<bos>", *SPECIAL.findall(template)}))
    core.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=eos,
        bos_token="<bos>",
        clean_up_tokenization_spaces=False,
    )


class Family:
    """A template with a tokenizer that knows its tokens."""

    def __init__(self, name: str, *, training: bool = False) -> None:
        text = (FOLDER / f"{name}{'_training' * training}.jinja").read_text(encoding="utf-8")
        self.tokenizer = tokenizer(text, EOS[name])
        self.chat = ChatTokenizer(self.tokenizer, text, 10_000)

    def tokens(self, row: Any) -> Tokens:
        """A row's tokens."""
        found = read(row, format_of(row))
        assert isinstance(found, Conversation)
        return self.chat.tokens(found)

    def learnt(self, row: Any) -> list[str]:
        """The texts that carry a loss, one for each answer."""
        said = self.tokens(row)
        return self.runs(said.input_ids, [label != IGNORED for label in said.labels])

    def runs(self, ids: list[int], chosen: list[Any]) -> list[str]:
        """Tokens that stand together, as texts."""
        texts, run = [], []
        for token, counts in zip([*ids, 0], [*chosen, False], strict=True):
            if counts:
                run.append(token)
            elif run:
                texts.append(self.tokenizer.decode(run))
                run = []
        return texts

    def marked(self, row: Any) -> list[str]:
        """The texts that the template itself marks as an assistant's."""
        found = read(row, format_of(row))
        assert isinstance(found, Conversation)
        said = self.tokenizer.apply_chat_template(
            self.chat.template.taken(self.chat.template.fitted(found).messages),
            tools=list(found.tools) or None,
            chat_template=self.chat.template.text,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        return self.runs(said["input_ids"], said["assistant_masks"])

    def prompt(self) -> str:
        """What the model is given to go on from."""
        made = self.tokenizer.apply_chat_template(
            self.chat.template.taken([{"role": "user", "content": "q"}]),
            chat_template=self.chat.template.text,
            tokenize=False,
            add_generation_prompt=True,
        )
        return str(made)


def talk(*turns: str, system: str | None = None) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]
    before = [{"role": "system", "content": system}] if system else []
    return {"messages": [*before, *messages]}


@pytest.mark.parametrize("name", EOS)
def test_every_answer_is_learnt_with_the_token_that_ends_it(name: str) -> None:
    first, second = Family(name).learnt(talk("q1", "first", "q2", "second"))

    assert "first" in first
    assert first.endswith(STOPS.get(name, "<|end|>" if name == "gptoss" else EOS[name]))
    assert "second" in second
    assert second.endswith(EOS[name])
    assert not any(question in first + second for question in ("q1", "q2"))


@pytest.mark.parametrize("name", sorted(set(EOS) - {"gemma"}))
def test_a_system_text_is_not_learnt(name: str) -> None:
    family = Family(name)
    row = talk("q1", "first", system="be brief")

    assert "be brief" in family.tokenizer.decode(family.tokens(row).input_ids)
    assert "be brief" not in "".join(family.learnt(row))


def test_a_template_without_system_texts_says_so() -> None:
    with pytest.raises(RowError, match="refuses it: “System role not supported”"):
        Family("gemma").learnt(talk("q1", "first", system="be brief"))


@pytest.mark.parametrize("name", EOS)
def test_what_is_learnt_is_what_the_family_marks_but_for_what_the_model_is_given(
    name: str,
) -> None:
    family = Family(name, training=True)
    row = talk("q1", "first", "q2", "second")

    for ours, theirs in zip(family.learnt(row), family.marked(row), strict=True):
        given, found, rest = theirs.partition(ours)
        assert found
        assert given in family.prompt(), "only what the model is given is left out"
        assert rest.strip() == "", "and the line break behind the token that ends the turn"


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "qwen3_5_think", "glm4moe", "gptoss"])
def test_a_tool_call_is_learnt_and_its_result_is_not(name: str) -> None:
    family = Family(name, training=True)
    learnt = family.learnt(CALLING)

    assert ["look" in text for text in learnt] == [True, False, False]
    assert "it is 42" in learnt[1]
    assert "second" in learnt[2]
    assert learnt[0].rstrip().endswith((EOS[name], "<|observation|>", "<|call|>"))
    assert all("q2" not in text and "looks" not in text for text in learnt)
    for ours, theirs in zip(learnt, family.marked(CALLING), strict=True):
        assert ours in theirs


@pytest.mark.parametrize("name", ["llama3", "gemma", "phi3", "deepseekv3"])
def test_tools_that_a_template_leaves_out_are_a_reason(name: str) -> None:
    with pytest.raises(RowError, match="has tools, which the chat template does not render"):
        Family(name).learnt(CALLING)


THOUGHT = talk(
    "q1", "<think>\nwhy one\n</think>\n\nfirst", "q2", "<think>\nwhy\n</think>\n\nsecond"
)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_think", "glm4moe"])
def test_an_answer_whose_reasoning_the_template_takes_away_is_not_learnt(name: str) -> None:
    family = Family(name)
    (last,) = family.learnt(THOUGHT)

    assert "why" in last
    assert "second" in last
    assert "why one" not in family.tokenizer.decode(family.tokens(THOUGHT).input_ids)
    assert family.tokens(THOUGHT).skipped == 1
    assert family.tokens(talk("q1", "first", "q2", "second")).skipped == 0


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_think", "glm4moe"])
def test_reasoning_in_a_field_of_its_own_is_the_same_row(name: str) -> None:
    turns = THOUGHT["messages"]
    apart = [
        {**turn, "content": text, "reasoning_content": why} if text else turn
        for turn, (why, text) in zip(
            turns, [("", ""), ("why one", "first"), ("", ""), ("why", "second")], strict=True
        )
    ]
    family = Family(name)

    assert family.tokens({"messages": apart}).labels == family.tokens(THOUGHT).labels


@pytest.mark.parametrize("name", ["qwen2_5", "llama3", "phi3"])
def test_reasoning_stays_in_an_answer_where_the_template_does_not_know_of_it(name: str) -> None:
    assert all("why" in text for text in Family(name).learnt(THOUGHT))


@pytest.mark.parametrize("name", ["deepseekv3", "deepseek_r1_distill"])
def test_a_template_that_takes_the_last_reasoning_away_drops_the_row(name: str) -> None:
    with pytest.raises(RowError, match="removes part of its answer, turn 4"):
        Family(name).learnt(THOUGHT)


@pytest.mark.parametrize("name", EOS)
def test_special_tokens_in_a_rows_own_text_stay_text(name: str) -> None:
    family = Family(name)
    stop = EOS[name]
    plain = family.tokens(talk("q", "one two"))
    spelt = family.tokens(talk(f"q {stop}", f"one {stop} two"))

    number = family.tokenizer.convert_tokens_to_ids(stop)
    assert spelt.input_ids.count(number) == plain.input_ids.count(number)
    assert f"one {stop} two" in "".join(family.learnt(talk(f"q {stop}", f"one {stop} two")))


def test_the_shipped_chatml_is_chatml() -> None:
    from engine.data import chat_template

    made = tokenizer("<|im_start|> <|im_end|>", "<|im_end|>")
    chat = ChatTokenizer(made, chat_template("chatml", made), 1000)
    family = Family("qwen2_5")
    row = talk("q1", "first", "q2", "second", system="s")
    found = read(row, format_of(row))
    assert isinstance(found, Conversation)

    assert made.decode(chat.tokens(found).input_ids) == family.tokenizer.decode(
        family.tokens(row).input_ids
    )
