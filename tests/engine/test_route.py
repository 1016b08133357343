"""The interface through which ranks of several machines talk."""

from __future__ import annotations

import socket

import pytest

from engine.route import interface_of, own_address


@pytest.mark.parametrize("first", ["127.0.0.1", "localhost"])
def test_the_way_to_this_machine_itself_is_its_loopback(first: str) -> None:
    assert interface_of(own_address(first)) == "lo"


def test_an_address_of_no_interface_has_none() -> None:
    assert interface_of("192.0.2.77") is None


def test_a_name_that_nobody_knows_is_an_error_to_wait_for() -> None:
    with pytest.raises(socket.gaierror):
        own_address("no-such-machine.invalid")
