"""Which network interface reaches the run's first machine: its ranks are to talk through that one.

Standard library only. Libraries choose by the machine's own name, or by the order of interfaces,
and take the loopback or a container bridge where that name is not known; each machine may call
its interface otherwise, so none can be written into a script for all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import sys
import time
from pathlib import Path

from engine.theirs import why

ANY_PORT = 29500
"""Nothing is sent there: a datagram socket that is connected only chooses its route."""
WAIT_SECONDS = 120.0
"""Machines of a cluster start one after the other, and a name is known when its machine is up."""
SIOCGIFADDR = 0x8915
"""Linux: the IPv4 address of an interface."""


def own_address(first: str) -> str:
    """The address of this machine from which the first one is reached.

    Raises OSError while its name is not known, or there is no way to it.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        first, ANY_PORT, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The interface that has an address of this machine; None where the system does not tell."""
    for _, name in socket.if_nameindex():
        if address.partition("%")[0] in _addresses(name):
            return name
    return None


def _addresses(name: str) -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        request = struct.pack("256s", name.encode()[:15])
        found.append(socket.inet_ntoa(fcntl.ioctl(asked.fileno(), SIOCGIFADDR, request)[20:24]))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, owner = line.split()
            if owner == name:
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def main() -> None:
    """Print the interface for the address that is given, or nothing where it is not found."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            found = interface_of(own_address(sys.argv[1]))
        except OSError as error:
            if time.monotonic() < end:
                time.sleep(1.0)
                continue
            print(f"{sys.argv[1]}: {why(error)}", file=sys.stderr)  # noqa: T201
            return
        print(found or "")  # noqa: T201
        return


if __name__ == "__main__":
    main()
