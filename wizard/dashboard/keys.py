"""The keys of the dashboard."""

from __future__ import annotations

from textual.binding import Binding, BindingType


def _key(key: str, action: str, name: str, tooltip: str, *, show: bool = False) -> Binding:
    first = action.partition("(")[0].replace("_", "-")
    return Binding(key, action, name, show=show, id=f"dashboard.{first}", tooltip=tooltip)


BINDINGS: list[BindingType] = [
    Binding(
        "enter", "next", "Result", id="page.next", priority=True, tooltip="How the run ended"
    ),
    Binding("q,ctrl+c", "leave", "Leave", key_display="q", id="dashboard.leave",
            tooltip="Leave; the run goes on"),
    Binding("escape", "back", show=False, id="page.back",
            tooltip="Out of what was opened last, then leave"),
    _key("s", "stop", "Stop", "Stop the run: asks first", show=True),
    _key("g", "resume", "Resume", "Resume the run from its last checkpoint", show=True),
    _key("l", "log", "Log", "The log alone, or all boxes again", show=True),
    _key("c", "metric", "Chart", "The next curve: loss, lr, grad norm, tok/s, memory", show=True),
    _key("f", "faults", "Faults", "What is wrong, why, and what to do", show=True),
    _key("m", "maximise", "Larger", "The box with the focus alone, or all again", show=True),
    _key("r", "replay", "Replay", "Show a run that ended from its beginning", show=True),
    _key("o", "order", "Order", "Ranks: slowest first, by number, by memory, by host"),
    _key("j,down", "ranks(1)", "Down", "Further down in the table of ranks"),
    Binding("k,up", "ranks(-1)", show=False, id="dashboard.ranks-up",
            tooltip="Further up in the table of ranks"),
    _key("a", "log_of", "Whose log", "Log of the launcher, of the picked rank, of all ranks"),
    _key("slash", "filter", "Filter", "Only lines of the log that contain a text"),
    _key("p", "pause", "Pause", "Hold the log still, or follow it again"),
    _key("u", "unpin", "Unpin", "Let go of the error lines that stay over the log"),
    _key("x", "export", "Picture", "Write this view to a file: SVG"),
    *(
        Binding(key, f"frame({by})", show=False, priority=True, id=f"dashboard.{name}",
                tooltip=f"Replay: {told}")
        for key, by, name, told in (
            ("right", 1, "later", "later"),
            ("left", -1, "earlier", "earlier"),
            ("end", 100_000, "last", "the end"),
            ("home", -100_000, "first", "the beginning"),
        )
    ),
    Binding("tab", "box(1)", show=False, id="dashboard.box", tooltip="The next box"),
    Binding("shift+tab", "box(-1)", show=False, id="dashboard.box-back", tooltip="The box before"),
    *(
        Binding(
            str(number),
            f"pick({number})",
            "Rank",
            show=False,
            id=f"dashboard.rank-{number}",
            tooltip="Pick a rank by its number: its details and its log",
        )
        for number in range(10)
    ),
]  # fmt: skip
