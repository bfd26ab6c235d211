"""A page is opened once its server responds, and only for a person with a display."""

from __future__ import annotations

import sys
import threading
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from penstock.cli import opening
from penstock.testing.clusters import reserve_port


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


def test_a_page_is_opened_when_its_server_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with reserve_port() as reserved:
        port = reserved.getsockname()[1]
        waiting = opening.open_when_ready(f"http://127.0.0.1:{port}/#/fleet")
        assert opened == []
        with HTTPServer(("127.0.0.1", port), _Page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            waiting.join(60)
            server.shutdown()
    assert opened == [f"http://127.0.0.1:{port}/#/fleet"]


@pytest.mark.parametrize(("display", "terminal"), [("", True), (":0", False)])
def test_nothing_is_opened_without_a_person(
    monkeypatch: pytest.MonkeyPatch, display: str, terminal: bool
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not opening.can_open()
