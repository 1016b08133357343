"""Examples: what the rows of each stage become, and the columns its trainer reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.data import IGNORED, ChatTokenizer, chat_template
from engine.failure import RunError
from engine.methods import Stage
from engine.rows.values import Conversation, Document, Judged, Pair, RowError

READS: Mapping[str, type] = {
    "sft": Conversation,
    "pretrain": Document,
    "dpo": Pair,
    "kto": Judged,
    "reward": Pair,
}
"""Stage → what its rows hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTokens:
    """Two answers to one prompt; a sequence is the prompt and one of them."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    length: int
    """Tokens of the longer sequence; there are fewer where an answer was cut at the end."""
    kept: int
    """Tokens that are left of it."""
    total: int
    """Tokens that pass through the model: the prompt does with each answer."""
    trained: int
    """Tokens of both answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedTokens:
    """One answer to a prompt, and whether it is good."""

    prompt_ids: list[int]
    completion_ids: list[int]
    label: list[int]
    """[1] for a good answer, [0] for a bad one."""
    length: int
    """Tokens of the sequence; there are fewer where the answer was cut at the end."""

    @property
    def kept(self) -> int:
        """Tokens that are left of it."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def total(self) -> int:
        """Tokens that pass through the model, but for the estimate of how far it has moved."""
        return self.kept

    @property
    def trained(self) -> int:
        """Tokens of the answer."""
        return len(self.completion_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentTokens:
    """One text with its end token, before blocks are made of it; nothing of it is cut."""

    input_ids: list[int]

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.input_ids)

    @property
    def kept(self) -> int:
        """Tokens."""
        return len(self.input_ids)

    @property
    def total(self) -> int:
        """Tokens that pass through the model."""
        return len(self.input_ids)

    @property
    def trained(self) -> int:
        """Tokens that are learnt: all, until blocks are made of them."""
        return len(self.input_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    prompt_ids: list[int]
    completion_ids: list[int]
    length: int

    @property
    def kept(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


def _answered(said: Conversation, chat: ChatTokenizer) -> _Side:
    """The tokens of a last answer, from the first that is the model's to say to its end mark.

    What a template writes after the end mark is left out: the model never says it.
    """
    tokens = chat.tokens(said)
    learnt = [place for place, label in enumerate(tokens.labels) if label != IGNORED]
    first, end = learnt[0], learnt[-1] + 1
    return _Side(
        prompt_ids=tokens.input_ids[:first],
        completion_ids=tokens.input_ids[first:end],
        length=tokens.length if tokens.cut else end,
    )


class PairMaker:
    """Makes tokens of pairs."""

    columns = ("prompt_ids", "chosen_ids", "rejected_ids")

    def __init__(self, chat: ChatTokenizer, *, whole: bool) -> None:
        """In `whole` sequences both answers begin with their prompt, as TRL's reward trainer wants
        them; the prompt alone then only tells which rows belong together.
        """
        self.chat, self.whole = chat, whole

    def tokens(self, row: Pair) -> PairTokens:
        """The tokens of a pair.

        Raises RowError when the template renders the prompt in two ways, or the cut leaves no
        difference between the answers.
        """
        chosen, rejected = (_answered(said, self.chat) for said in (row.chosen, row.rejected))
        prompt = chosen.prompt_ids
        if prompt != rejected.prompt_ids:
            raise RowError(
                "the chat template renders the prompt differently before the two answers"
            )
        if chosen.completion_ids == rejected.completion_ids:
            raise RowError(
                "`chosen` and `rejected` are the same answer within "
                f"{self.chat.max_length} tokens (max_length)"
            )
        before = prompt if self.whole else []
        return PairTokens(
            prompt_ids=prompt,
            chosen_ids=before + chosen.completion_ids,
            rejected_ids=before + rejected.completion_ids,
            length=max(chosen.length, rejected.length),
            kept=max(chosen.kept, rejected.kept),
            total=chosen.kept + rejected.kept,
            trained=len(chosen.completion_ids) + len(rejected.completion_ids),
        )


class JudgedMaker:
    """Makes tokens of single answers."""

    columns = ("prompt_ids", "completion_ids", "label")

    def __init__(self, chat: ChatTokenizer) -> None:
        self.chat = chat

    def tokens(self, row: Judged) -> JudgedTokens:
        """The tokens of an answer with its label; raises RowError as the chat tokenizer does."""
        side = _answered(row.answered, self.chat)
        return JudgedTokens(
            prompt_ids=side.prompt_ids,
            completion_ids=side.completion_ids,
            label=[int(row.label)],
            length=side.length,
        )


class TextMaker:
    """Makes tokens of documents: begun and ended as this tokenizer's own models expect."""

    columns = ("input_ids",)

    def __init__(self, tokenizer: Any) -> None:
        """Raises RunError (bad_spec) for a tokenizer that has no end token."""
        if tokenizer.eos_token_id is None:
            raise RunError(
                "bad_spec", "the tokenizer has no end token (eos_token) to put between documents"
            )
        self.tokenizer = tokenizer
        self.end = tokenizer.eos_token_id
        said = tokenizer("")["input_ids"]
        self.begin = [token for token in said[:1] if token == tokenizer.bos_token_id]

    def tokens(self, row: Document) -> DocumentTokens:
        """The tokens of a text; special tokens that it spells out stay plain text."""
        ids = self.tokenizer(
            row.text,
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
            verbose=False,
        )["input_ids"]
        return DocumentTokens(input_ids=[*self.begin, *ids, self.end])


def maker(stage: Stage, tokenizer: Any, template: str | None, max_length: int) -> Any:
    """What makes tokens of a stage's rows, by a shipped template or the model's own.

    Raises RunError (bad_spec) for a model without what the stage needs: a chat template, or for
    text an end token.
    """
    if stage == "pretrain":
        return TextMaker(tokenizer)
    chat = ChatTokenizer(tokenizer, chat_template(template, tokenizer), max_length)
    if stage == "sft":
        return chat
    return JudgedMaker(chat) if stage == "kto" else PairMaker(chat, whole=stage == "reward")
