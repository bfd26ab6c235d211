"""Servers for the guides are installed where they can be; each other one is named in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab import guide_servers


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty lab on a machine without apt."""
    monkeypatch.setenv("PENSTOCK_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.process
def test_servers_that_cannot_be_installed_have_a_reason(bare: None) -> None:
    assert guide_servers.install("NATS") == "apt-get and dpkg-deb not found on this machine"


@pytest.mark.process
def test_an_installation_has_a_time_limit(bare: None) -> None:
    assert guide_servers.install("NATS", limit_s=0.0) == "not installed within 0 s"


def test_without_clients_the_tests_run_with_this_interpreter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(name: str) -> str:
        return "no registry"

    monkeypatch.setattr(guide_servers, "install", unreachable)
    assert guide_servers.main([]) == 0
    output, errors = capsys.readouterr()
    assert output == f"{sys.executable}\n"
    assert errors.splitlines() == [
        f"guides run without {name}: no registry" for name in ("clients", "NATS", "RabbitMQ", "moto")
    ]
