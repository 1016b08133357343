"""The app's own colours: calm, dark, one accent."""

from __future__ import annotations

from textual.theme import Theme

CALM = Theme(
    name="tunewright",
    primary="#7fb4ca",
    secondary="#957fb8",
    accent="#e6c384",
    foreground="#dcd7ba",
    background="#16161d",
    surface="#1c1c25",
    panel="#252530",
    success="#98bb6c",
    warning="#e6a35c",
    error="#e46876",
    dark=True,
    variables={
        "block-cursor-background": "#2d4f67",
        "block-cursor-foreground": "#f2ecbc",
        "block-cursor-blurred-background": "#252530",
        "footer-key-foreground": "#e6c384",
        "border": "#54546d",
        "border-blurred": "#363646",
    },
)
