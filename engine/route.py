"""Which network interface leads to a machine: `python -m engine.route ADDRESS` prints its name."""

from __future__ import annotations

import socket
import sys

import psutil

ANY_PORT = 9


def interface_to(address: str) -> str | None:
    """The interface of this machine that packets to an address leave by; None when unknown.

    Nothing is sent. For this machine's own address it is the interface that has it.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(address, ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == own for one in addresses):
            return str(name)
    return None


def main(address: str) -> int:
    """Print the interface, if there is one; the exit code."""
    found = interface_to(address)
    if found is None:
        return 1
    print(found)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
