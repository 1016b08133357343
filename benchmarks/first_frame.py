"""How long until the command answers and the app shows its first frame, beside Textual alone.

Run: python benchmarks/first_frame.py [rounds]. Every child starts its clock when its parent
starts it; the rounds are interleaved and the least of each is compared, so that a busy machine
hurts all of them alike. Prints; asserts nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "deepspeed")

REPORT = "import sys, time; print(time.monotonic() - float(sys.argv[1]), *sys.modules)"

FIRST_FRAME = """
from wizard.app import TunewrightApp
from wizard.commands.verbs import verbs

async def leave(pilot):
    # Called once the first screen is painted.
    report()
    pilot.app.exit()

def report():
    import os
    {report}
    sys.stdout.flush()
    os._exit(0)

TunewrightApp(verbs()).run(headless=True, size=(80, 24), auto_pilot=leave)
"""

CHILDREN = {
    "import textual.app, textual.widgets": f"import textual.app, textual.widgets; {REPORT}",
    "tunewright --help": (
        "import contextlib, os\nfrom wizard.cli import build_parser\n"
        f"build_parser().print_help(open(os.devnull, 'w'))\n{REPORT}"
    ),
    "first frame of the app": FIRST_FRAME.format(report=REPORT.replace("; print", "\n    print")),
}


def measure(code: str, home: str) -> tuple[float, set[str]]:
    """Seconds from starting the child until it reports, and the packages it has loaded."""
    command = [sys.executable, "-c", code, str(time.monotonic())]
    environment = os.environ | {"TUNEWRIGHT_HOME": home}
    output = subprocess.run(
        command, env=environment, check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    seconds, *modules = output.split("\0")[-1].split()
    return float(seconds), {name.split(".")[0] for name in modules}


def main(rounds: int) -> None:
    """Print one line for each child."""
    least: dict[str, float] = {}
    heavy: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(rounds):
            for name, code in CHILDREN.items():
                seconds, packages = measure(code, home)
                least[name] = min(seconds, least.get(name, seconds))
                heavy[name] = packages & set(HEAVY)
    textual_seconds = least["import textual.app, textual.widgets"]
    for name, seconds in least.items():
        loaded = ", ".join(sorted(heavy[name])) or "none"
        ratio = seconds / textual_seconds
        print(
            f"{name:<38} {seconds:6.3f} s  {ratio:4.2f} x textual  training stack loaded: {loaded}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
