"""Slow calls beside the screen: in a thread each, which neither leaving nor quitting waits for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")


async def aside(call: Callable[[], Value]) -> Value:
    """What the call gives, or the error it raises.

    An executor's threads are waited for when the program ends, so a probe that hangs would hold
    it back for ever; this thread is left behind.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Value] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: object) -> None:
        if not outcome.done():  # else nobody waits any more
            setter(value)

    def work() -> None:
        try:
            value = call()
        except BaseException as error:  # to be raised where the value is waited for
            tell(outcome.set_exception, error)
        else:
            tell(outcome.set_result, value)

    def tell(setter: Callable[[Any], None], value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the screen and its loop are gone
            loop.call_soon_threadsafe(settle, setter, value)

    threading.Thread(target=work, daemon=True).start()
    return await outcome
