"""Models and rows for timing trainers beside each other: the same token ids and labels for all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for message in messages %}"
    "{{ ('' if loop.first else '\n') + '<|im_start|>' + message['role'] + '\n' "
    "+ message['content'] + '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML with line breaks between turns only: a trainer that learns what a template writes behind
the last end mark then learns the same tokens as one that does not."""
SYSTEM = "You are a helpful assistant."
"""Said in every row: trainers put different texts where there is none."""
SMALL: Mapping[str, int] = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}
"""A Llama of 5 million weights."""


def small_model(folder: Path) -> Path:
    """A random one with a token for each byte, made once."""
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.fakes.tiny.make import IM_END, IM_START, tokenizer

    torch.manual_seed(0)
    special = {"bos_token_id": IM_START, "eos_token_id": IM_END, "pad_token_id": IM_END}
    shape: dict[str, Any] = {**SMALL, "vocab_size": 272, "tie_word_embeddings": True, **special}
    LlamaForCausalLM(LlamaConfig(**shape)).to(torch.bfloat16).save_pretrained(folder)
    tokenizer(TEMPLATE).save_pretrained(folder)
    return folder


def with_template(model: Path, folder: Path) -> Path:
    """A model folder like another one, with the one template that trainers agree on."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in model.iterdir():
        here = folder / path.name
        if path.name != "chat_template.jinja" and not here.exists():
            here.symlink_to(path)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def equal_rows(model: Path, path: Path, *, rows: int, tokens: int, learnt: int) -> Path:
    """Rows of exactly `tokens` tokens, the last `learnt` before the end mark being the answer.

    So every step of every trainer has the same shape, in whatever order it takes the rows.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    words = Words(tokenizer)
    chosen = random.Random(0)

    def row(asked: str, told: str) -> dict[str, Any]:
        texts = {"system": SYSTEM, "user": asked, "assistant": told}
        return {"messages": [{"role": name, "content": text} for name, text in texts.items()]}

    frame = words.length(tokenizer.apply_chat_template(row("", "")["messages"], tokenize=False))
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            made = row(words.text(chosen, tokens - learnt - frame), words.text(chosen, learnt))
            text = tokenizer.apply_chat_template(made["messages"], tokenize=False)
            if words.length(text) != tokens:
                raise ValueError(f"a row has {words.length(text)} tokens, not {tokens}")
            file.write(json.dumps(made) + "\n")
    return path


class Words:
    """Texts of an exact number of tokens, made of the words of the shipped rows."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        said = {word for text in _shipped_texts() for word in text.split() if word.isalpha()}
        self.words = sorted(said)

    def length(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def text(self, chosen: random.Random, tokens: int) -> str:
        """A text of exactly so many tokens, none of them a special one."""
        while True:
            text = chosen.choice(self.words)
            while self.length(longer := f"{text} {chosen.choice(self.words)}") < tokens:
                text = longer
            for word in self.words:  # the last one is what fits
                if self.length(f"{text} {word}") == tokens:
                    return f"{text} {word}"


def _shipped_texts() -> Iterator[str]:
    from wizard import paths

    for path in sorted((paths.shipped_presets() / "data").glob("ordinary-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from (message["content"] for message in json.loads(line)["messages"])


def natural_rows(path: Path, *, rows: int) -> Path:
    """The shipped rows, again and again, as many as are asked for; lengths are as people write."""
    from wizard.demo.rows import demo_rows

    shipped = demo_rows("Tunewright", "its makers")
    chosen = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            if number % len(shipped) == 0:
                chosen.shuffle(shipped)
            turns = shipped[number % len(shipped)]["messages"]
            said = [turn for turn in turns if turn["role"] != "system"]
            messages = [{"role": "system", "content": SYSTEM}, *said]
            file.write(json.dumps({"messages": messages}) + "\n")
    return path
