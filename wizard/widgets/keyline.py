"""The last line: the keys that work here, whole ones as far as there is room; a click is a key."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.app import RenderResult
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

ALWAYS = frozenset({"page.next", "page.back", "page.help", "page.help-typing", "app.quit"})
"""Ids of keys that stay when there is room for few; help names all of them."""
GAP = 2


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the line."""

    id: str | None
    key: str
    name: str
    """As it is printed on a keyboard."""
    does: str
    tooltip: str
    enabled: bool

    @property
    def width(self) -> int:
        """Cells that it takes."""
        return cell_len(self.name) + 1 + cell_len(self.does)


def fitting(keys: list[Key], width: int) -> list[Key]:
    """The keys that a line of `width` cells has room for, in their order; the last give way."""
    kept = list(keys)
    for key in reversed(keys):
        if sum(one.width + GAP for one in kept) - GAP <= width:
            break
        if key.id not in ALWAYS:
            kept.remove(key)
    return kept


class KeyLine(Widget):
    """One widget, so that a page with many keys is drawn as fast as one with few."""

    DEFAULT_CSS = """
    KeyLine { dock: bottom; height: 1; padding: 0 1; }
    KeyLine { color: $footer-foreground; background: $footer-background; }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._shown: list[Key] = []

    def on_mount(self) -> None:
        """Follow what works."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def render(self) -> RenderResult:
        """The keys, each name in its colour; those that do nothing now are dimmed."""
        self._shown = fitting(self._keys(), self.content_size.width)
        parts: list[Content | str | tuple[str, str]] = []
        for key in self._shown:
            dim = "" if key.enabled else "dim "
            parts += [(key.name, f"{dim}bold $footer-key-foreground"), " "]
            parts += [(key.does, f"{dim}$footer-description-foreground"), " " * GAP]
        return Content.assemble(*parts[:-1])

    def on_click(self, event: events.Click) -> None:
        """Do what the key under the pointer does."""
        key = self._at(event.x)
        if key is not None and key.enabled:
            self.app.simulate_key(key.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Say more of the key under the pointer."""
        key = self._at(event.x)
        tooltip = key.tooltip if key is not None else None
        if tooltip != self.tooltip:
            self.tooltip = tooltip

    def _at(self, x: int) -> Key | None:
        begins = 1
        for key in self._shown:
            if begins <= x < begins + key.width:
                return key
            begins += key.width + GAP
        return None

    def _keys(self) -> list[Key]:
        """Keys of the page that are to be shown, each action once."""
        found: dict[str, Key] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and binding.action not in found:
                found[binding.action] = self._key(binding, active.enabled, active.tooltip)
        return list(found.values())

    def _key(self, binding: Binding, enabled: bool, tooltip: str) -> Key:
        return Key(
            id=binding.id,
            key=binding.key,
            name=self.app.get_key_display(binding),
            does=binding.description,
            tooltip=tooltip or binding.tooltip,
            enabled=enabled,
        )

    def _changed(self, screen: Screen[object]) -> None:
        if screen is self.screen and fitting(self._keys(), self.content_size.width) != self._shown:
            self.refresh()
