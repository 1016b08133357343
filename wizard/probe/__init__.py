"""World → Facts: what this machine is.

The parts are imported where they are used: the children that ask drivers are modules of this
package too, and start in no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from wizard.facts import Facts


def probe_machine(*, torch: bool = False, say: Callable[[Facts], None] | None = None) -> Facts:
    """Facts of this machine. Never raises; what cannot be read is None or a Problem.

    Takes as long as its slowest part. torch: ask torch when nothing is remembered of it, which
    takes seconds. say: told the facts known so far each time more has come in, in this thread.
    """
    from wizard.probe.assembly import assemble

    return assemble(torch=torch, say=say)
