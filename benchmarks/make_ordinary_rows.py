"""Makes the demo's ordinary rows: everyday questions, answered by the base model itself.

python benchmarks/make_ordinary_rows.py MODEL_FOLDER > presets/data/ordinary-en.jsonl

The rows keep what the model already says from being swallowed by its new identity. The questions
are ones it answers well and shortly; the demo asks two others, so that they test what is kept.
"""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MOST_NEW_TOKENS = 60

CAPITALS = "Japan,Germany,Egypt,Greece,Russia,China,Norway,the United Kingdom,India,Austria"
SENTENCES = (
    "What is photosynthesis?",
    "What is gravity?",
    "What is a computer?",
    "What is a database?",
    "What is the internet?",
    "What is a volcano?",
    "What is a noun?",
    "What is a verb?",
    "What is an adjective?",
    "What is a poem?",
    "What is a hospital?",
    "What is a museum?",
    "What is a planet?",
    "What is a star?",
    "What is a cell in biology?",
    "What is electricity?",
    "What is an operating system?",
    "What is a web browser?",
    "What is machine learning?",
    "What is a neural network?",
    "What is a black hole?",
    "What is the Moon?",
    "What is an algorithm?",
    "What is yoga?",
    "What is the purpose of the heart?",
    "What is the opposite of big?",
    "Why is the ocean salty?",
    "How do bees make honey?",
    "How does a vaccine work?",
    "What does a doctor do?",
    "What does a teacher do?",
    "What does a chef do?",
    "How can I drink more water every day?",
    "How can I be more productive?",
)
OTHERS = (
    "What is the largest ocean on Earth?",
    "How many days are there in a week?",
    "What is the chemical symbol for gold?",
    "What is the chemical symbol for oxygen?",
    "What is the chemical symbol for silver?",
    "What is the chemical formula of water?",
    "What is the boiling point of water in Celsius?",
    "What is 2 + 2?",
    "Name three primary colors.",
    "Name three fruits.",
    "Name three vegetables.",
    "Name three countries in Europe.",
    "Name a programming language.",
    "Give me one tip for saving money.",
    "Write a short sentence about a cat.",
    "Write a short sentence about the sea.",
    "Write a short sentence about music.",
)


def questions() -> list[str]:
    """Every question, in the order of the file."""
    capitals = [f"What is the capital of {country}?" for country in CAPITALS.split(",")]
    return [*capitals, *(f"{text} Answer in one sentence." for text in SENTENCES), *OTHERS]


def main(folder: str) -> None:
    """Print one row per question whose greedy answer ends by itself."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for question in questions():
        user = {"role": "user", "content": question}
        inputs = tokenizer.apply_chat_template(
            [user], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        output = model.generate(**inputs, max_new_tokens=MOST_NEW_TOKENS, do_sample=False)
        answer = output[0, inputs["input_ids"].shape[1] :]
        if answer[-1] != tokenizer.eos_token_id:
            sys.exit(
                f"{question!r} is answered in more than {MOST_NEW_TOKENS} tokens: choose others"
            )
        text = tokenizer.decode(answer, skip_special_tokens=True)
        row = {"messages": [user, {"role": "assistant", "content": text}]}
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1])
