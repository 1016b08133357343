"""A Llama of a few thousand weights, and a ChatML tokenizer whose pad is its end mark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
IM_START, IM_END = 257, 258


def tokenizer(template: str | None = TEMPLATE):  # type: ignore[no-untyped-def]
    """The tokenizer alone, which needs no torch: a token per byte, then three special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = template
    return made


def model_folder(folder: Path, template: str | None = TEMPLATE, width: int = 32) -> Path:
    """A whole model folder, the same weights each time; some 25 × its width squared."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=272,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=IM_START,
        eos_token_id=IM_END,
        pad_token_id=IM_END,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer(template).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# tiny\n")
    return folder


def data_file(path: Path, rows: int = 16, stage: str = "sft") -> Path:
    """Rows of different lengths, as a stage reads them; a better answer has a full stop."""
    lines = [ROWS[stage](n) for n in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _asked(n: int) -> str:
    return f"What is {n}?" * (1 + n % 3)


def _told(n: int) -> str:
    return f"It is {n * n}, of course." * (1 + n % 2)


ROWS: dict[str, Callable[[int], dict[str, object]]] = {
    "sft": lambda n: {
        "messages": [
            {"role": "user", "content": _asked(n)},
            {"role": "assistant", "content": _told(n)},
        ]
    },
    "pretrain": lambda n: {"text": f"{_asked(n)} {_told(n)}"},
    "dpo": lambda n: {"prompt": _asked(n), "chosen": _told(n), "rejected": "No idea" * (1 + n % 4)},
    "reward": lambda n: {
        "prompt": _asked(n),
        "chosen": _told(n),
        "rejected": "No idea" * (1 + n % 4),
    },
    "kto": lambda n: {
        "prompt": _asked(n),
        "completion": _told(n) if n % 2 else "No idea" * (1 + n % 4),
        "label": bool(n % 2),
    },
}
"""Stage → row of a number."""
