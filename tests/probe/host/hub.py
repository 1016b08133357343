"""A stand-in for the model hub: a real server of this machine, and ports nobody listens at."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from collections.abc import Iterator

import pytest


class Server(http.server.BaseHTTPRequestHandler):
    """Answers every request with the code its path ends in; a redirect leads to `leads_to`."""

    leads_to = ""
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Range")))
        code = int(self.path.split("/")[1])
        self.send_response(code)
        if code == 302:
            self.send_header("Location", self.leads_to)
        self.send_header("Content-Length", "1" if code < 300 else "0")
        self.end_headers()
        if code < 300:
            self.wfile.write(b"x")

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server of this test."""
    for name in environment_names_of_proxies():
        monkeypatch.delenv(name, raising=False)
    Server.asked = []
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    thread.join()
    running.server_close()


def environment_names_of_proxies() -> list[str]:
    return [name for name in os.environ if name.lower().endswith("_proxy")]


@pytest.fixture
def closed_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
