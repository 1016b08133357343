"""A model as the hub describes it, asked of a server of this machine."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probe.host.hub import closed_port as closed_port
from tests.probe.host.hub import environment_names_of_proxies
from wizard.cli import main
from wizard.probe.hub import read_hub_model
from wizard.problem import ProblemError

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
ABOUT = {
    "gated": "manual",
    "cardData": {"license": "apache-2.0"},
    "safetensors": {"total": 123_456},
    "siblings": [
        {"rfilename": "model-1.safetensors", "size": 100},
        {"rfilename": "model-2.safetensors", "size": 50},
        {"rfilename": "pytorch_model.bin", "size": 999},
    ],
}


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers what is in `answers`, and 404 for the rest."""

    answers: dict[str, object]
    tokens: list[str | None]

    def do_GET(self) -> None:
        self.tokens.append(self.headers.get("Authorization"))
        found = self.answers.get(self.path.partition("?")[0])
        code = found if isinstance(found, int) else 200 if found is not None else 404
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in environment_names_of_proxies():
        monkeypatch.delenv(name, raising=False)
    Hub.answers = {"/api/models/org/m": ABOUT, "/org/m/resolve/main/config.json": CONFIG}
    Hub.tokens = []
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    thread.join()
    running.server_close()


def test_the_hub_is_asked_by_plan_too_once_it_is_told_to(
    hub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"instruction": "a", "output": "b"}\n' * 40)
    words = ["plan", "--model", "org/m", "--data", str(rows), "--machine", "T4-Colab"]
    assert main(words) == 2
    assert not Hub.tokens
    assert main([*words, "--hub"]) == 0
    assert "Model org/m: 0.1 M parameters (from 127.0.0.1)" in capsys.readouterr().out


def test_shape_size_licence_and_gate_are_those_of_the_hub(hub: str) -> None:
    model = read_hub_model("org/m", {"HF_ENDPOINT": hub, "HF_TOKEN": "hf_x"})
    assert (model.path, model.architecture, model.num_layers) == (None, "qwen3", 2)
    assert (model.parameters, model.disk_bytes) == (123_456, 150)
    assert (model.licence, model.gated, model.source) == ("apache-2.0", True, "127.0.0.1")
    assert Hub.tokens == ["Bearer hf_x", "Bearer hf_x"]
    read_hub_model("org/m", {"HF_ENDPOINT": hub})
    assert Hub.tokens[-1] is None


def test_quantised_ones_and_vision_towers_are_recognised(hub: str) -> None:
    Hub.answers["/org/m/resolve/main/config.json"] = {
        "text_config": CONFIG,
        "vision_config": {"model_type": "siglip"},
        "quantization_config": {"quant_method": "awq"},
    }
    model = read_hub_model("org/m", {"HF_ENDPOINT": hub})
    assert (model.vision, model.quantized, model.parameters) == ("siglip", "awq", None)
    assert model.hidden_size == 64


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (404, "no such model"),
        (401, "set HF_TOKEN"),
        (403, "accept its licence"),
        (500, "answers with 500"),
        (b"<html>", "no JSON"),
        ([], "no description"),
        ({**CONFIG, "hidden_size": "wide"}, "unreadable value"),
    ],
)
def test_what_the_hub_refuses_is_told_with_a_way_out(hub: str, answer: object, said: str) -> None:
    Hub.answers["/org/m/resolve/main/config.json"] = answer
    with pytest.raises(ProblemError, match=said):
        read_hub_model("org/m", {"HF_ENDPOINT": hub})


def test_a_hub_that_is_not_there_is_told(closed_port: int) -> None:
    with pytest.raises(ProblemError, match="cannot be reached"):
        read_hub_model("org/m", {"HF_ENDPOINT": f"http://127.0.0.1:{closed_port}"})
    with pytest.raises(ProblemError, match="not a hub id"):
        read_hub_model("../etc", {})
