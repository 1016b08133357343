"""The first frame comes at once: what is heavy is loaded when it is needed."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "transformers", "pydantic", "tomlkit", "plotext", "psutil", "pynvml"}


def test_the_app_loads_neither_planner_nor_chart_nor_what_trains() -> None:
    code = "import sys, wizard.app; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE
    ).stdout

    loaded = set(output.split())

    assert "textual.app" in loaded
    assert loaded & (HEAVY | {"wizard.planner", "wizard.dashboard.screen", "engine.spec"}) == set()
