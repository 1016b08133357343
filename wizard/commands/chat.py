"""`tunewright chat`: ask the tuned model."""

from __future__ import annotations

import argparse
from pathlib import Path

from wizard import api
from wizard.commands import output
from wizard.commands.terminal import note
from wizard.language import said
from wizard.runner.chat import ChatChild, Message

MOST_TOKENS = 1_000_000
HELP = "ask the tuned model"
DESCRIPTION = "Answers stream as they are made. An empty line or Ctrl+D ends."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", help="its name or folder")
    parser.add_argument("question", nargs="?", help="one question, then leave")
    output.add_runs(parser)
    parser.add_argument("--base", action="store_true", help="ask the untuned model instead")
    parser.add_argument(
        "--max-new-tokens",
        type=_tokens,
        default=256,
        metavar="N",
        help="longest answer in tokens, a token being about three quarters of a word (256)",
    )


def _tokens(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:10]) <= MOST_TOKENS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_TOKENS:,}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Chat."""
    from wizard.runner.folder import check_started, find_run

    folder: Path = find_run(api.runs_root(args.output), args.name)
    check_started(folder)
    with ChatChild(folder, base=args.base) as child:
        if args.question is not None:
            _answer(child, [{"role": "user", "content": args.question}], args.max_new_tokens)
        else:
            note(greeting(folder, base=args.base))
            _converse(child, args.max_new_tokens)
    return 0


def greeting(folder: Path, *, base: bool) -> str:
    """Who answers, and how to leave."""
    which = "untuned" if base else "tuned"
    return f"the {which} model of {folder}; an empty line or Ctrl+D leaves"


def _converse(child: ChatChild, max_new_tokens: int) -> None:
    messages: list[Message] = []
    while True:
        try:
            question = input(said("you: ")).strip()
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
