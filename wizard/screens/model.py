"""Page 2: which model is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from wizard import wording
from wizard.facts import Model
from wizard.problem import Problem
from wizard.steps import Step
from wizard.widgets.page import Page
from wizard.widgets.panel import Panel
from wizard.widgets.table import pairs


class ModelPage(Page[Model]):
    """Leaves with the Model that was named and read."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.MODEL
    QUESTION = "Which model? A folder on this machine, or a hub id such as Qwen/Qwen3-8B."
    HINT = "Enter reads the model; Enter again goes on to the data."
    HELP_TEXT = (
        "A folder holds config.json, the weights (safetensors) and the tokenizer. A hub id is "
        "fetched when the run starts, and its revision is recorded. Weights in pickle files are "
        "not loaded."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+t",
            "suggested",
            "Demo model",
            id="model.suggested",
            tooltip="Take the demo's small model, which is on this machine",
        ),
    ]

    def __init__(
        self,
        read_model: Callable[[str], Model],
        *,
        name: str | None,
        model: Model | None,
        suggested: str | None = None,
    ) -> None:
        super().__init__()
        self._read = read_model
        self._given = name or (model.name if model else None) or suggested or ""
        self._typed = self._given if model else None
        self._model = model
        self._suggested = suggested

    def body(self) -> ComposeResult:
        """Name, and what is known of it."""
        yield Input(
            wording.one_line(self._given),
            placeholder="folder or hub id",
            id="model",
            compact=True,
            select_on_focus=False,
        )
        yield Panel("Model", "Nothing read yet.", id="facts")

    def on_mount(self) -> None:
        """Start in the field, with what is known already."""
        self.query_one(Input).focus()
        if self._model is not None:
            self._show(self._model)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without a demo model on the machine there is none to offer."""
        if action == "suggested" and self._suggested is None:
            return False
        return super().check_action(action, parameters)

    def action_suggested(self) -> None:
        """Fill in the demo's model."""
        self.query_one(Input).value = self._suggested or ""

    def action_next(self) -> None:
        """Read the model that is named, or leave with the one that was read."""
        name = self._typed_name()
        if self.busy:
            return
        if self._model is not None and name == self._typed:
            self.dismiss(self._model)
        elif name:
            self._typed = name
            self.ask(lambda: self._read(name), self._show, f"reading {name}")
        else:
            self.refused(Problem(what="no model is named", fix="type a folder or a hub id"))

    def _typed_name(self) -> str:
        typed = self.query_one(Input).value.strip()
        return self._given if typed == wording.one_line(self._given) else typed

    def refused(self, problem: Problem) -> None:
        """What was shown before does not belong to this name."""
        self._model = None
        self.show("#facts", "Nothing read.")
        super().refused(problem)

    def _show(self, model: Model) -> None:
        self._model = model
        self.show("#facts", pairs(describe(model)))


def describe(model: Model) -> list[tuple[str, str]]:
    """A model's facts as labels and values."""
    exact = f" ({wording.count(model.parameters)})" if model.parameters else ""
    heads = f"{wording.count(model.num_heads)}, {wording.count(model.num_kv_heads)} key/value"
    template = {True: "its own", False: "none: a shipped one is needed", None: wording.UNKNOWN}
    return [
        ("name", model.name),
        ("folder", model.path or "not on this machine: fetched when the run starts"),
        ("architecture", model.architecture or wording.UNKNOWN),
        ("parameters", wording.parameters(model.parameters) + exact),
        ("layers", wording.count(model.num_layers)),
        ("hidden size", wording.count(model.hidden_size)),
        ("heads", heads),
        ("vocabulary", wording.count(model.vocab_size)),
        ("positions", wording.count(model.max_positions)),
        ("weights", f"{model.dtype or wording.UNKNOWN}, {wording.gib(model.disk_bytes)} on disk"),
        ("quantized", model.quantized or "no"),
        ("chat template", template[model.has_chat_template]),
        ("licence", model.licence or wording.UNKNOWN),
        ("known from", model.source or wording.UNKNOWN),
    ]
