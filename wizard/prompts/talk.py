"""Talk: a question is a line, an answer is a line; any of them may be to go back or to leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wizard.language import foreign, joined, said, said_problem
from wizard.problem import Problem


class Back(Exception):  # noqa: N818 – an answer, not an error
    """The user goes back to the question before."""


class Leave(Exception):  # noqa: N818
    """The user leaves; the answers so far are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """How one talks to whoever sits there."""

    read: Callable[[str], str]
    """Prompt → the line that was typed; raises EOFError at the end of the input."""
    say: Callable[[str], None]
    """Shows a line; foreign text in it cannot break out of it."""

    def ask(self, question: str, default: str = "", *, help_text: str = "") -> str:
        """The answer, without blanks around it; the default for an empty one.

        Raises Back for `b` and Leave for `q` or the end of the input; a file that is called so is
        named `./b`.
        """
        while True:
            try:
                asked = said(question)
                typed = self.read(f"{asked} [{default}]: " if default else f"{asked}: ")
            except EOFError:
                raise Leave from None
            match typed.strip():
                case "b":
                    raise Back
                case "q":
                    raise Leave
                case "?":
                    self.say(help_text or "No more is known about this question.")
                    self.say("b goes back, q leaves and keeps your answers.")
                case text:
                    return text or default

    def choose(
        self,
        options: Sequence[str],
        keys: Mapping[str, str] | None = None,
        *,
        default: str = "1",
        after: str = "",
        help_text: str = "",
    ) -> str:
        """The number of an option as text, or one of the keys, which are told with what they do.

        A key for which nothing is said is taken and not told; `after` stands below the options.
        """
        for number, option in enumerate(options, start=1):
            self.say(f"{number}. {said(option)}")
        if after:
            self.say(after)
        numbers = {str(number) for number in range(1, len(options) + 1)}
        further = [f"{key} {said(what)}" for key, what in (keys or {}).items() if what]
        first = said(f"Choose 1-{len(options)}" if len(options) > 1 else "Choose 1")
        question = joined([first, *further, said("b to go back")])
        while True:
            chosen = self.ask(question, default, help_text=help_text)
            if chosen in numbers or chosen in (keys or {}):
                return chosen
            self.say(f"There is no {foreign(repr(chosen))} here.")

    def refuse(self, problem: Problem) -> None:
        """Say what is wrong, where, and how to put it right."""
        self.say(f"({said(problem.severity)}) {said_problem(problem)}")
