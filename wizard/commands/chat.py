"""`tunewright chat`: ask the tuned model."""

from __future__ import annotations

import argparse
from pathlib import Path

from wizard import api
from wizard.runner.chat import ChatChild, Message

HELP = "ask the tuned model"
DESCRIPTION = "Answers stream as they are made. An empty line or Ctrl+D ends."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", help="its name or folder")
    parser.add_argument("question", nargs="?", help="one question, then leave")
    parser.add_argument("--output", metavar="DIR", help="folder that holds the runs")
    parser.add_argument("--base", action="store_true", help="ask the untuned model instead")
    parser.add_argument("--max-new-tokens", type=int, default=256, metavar="N")


def run(args: argparse.Namespace) -> int:
    """Chat."""
    from wizard.runner.folder import find_run

    folder: Path = find_run(api.runs_root(args.output), args.name)
    with ChatChild(folder, base=args.base) as child:
        if args.question is not None:
            _answer(child, [{"role": "user", "content": args.question}], args.max_new_tokens)
        else:
            _converse(child, args.max_new_tokens)
    return 0


def _converse(child: ChatChild, max_new_tokens: int) -> None:
    messages: list[Message] = []
    while True:
        try:
            question = input("you: ").strip()
        except EOFError:
            print()
            return
        if not question:
            return
        messages.append({"role": "user", "content": question})
        answer = _answer(child, messages, max_new_tokens)
        messages.append({"role": "assistant", "content": answer})


def _answer(child: ChatChild, messages: list[Message], max_new_tokens: int) -> str:
    from wizard.wording import one_line

    pieces = []
    for piece in child.ask(messages, max_new_tokens):
        pieces.append(piece)
        shown = "\n".join(one_line(line) for line in piece.split("\n"))
        print(shown, end="", flush=True)
    print()
    return "".join(pieces)
