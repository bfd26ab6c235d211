"""The command against a broker that all tests of client commands share."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.cli import client_config
from penstock.testing import broker as broker_thread
from tests.cli.running import Command, run_here


@pytest.fixture(autouse=True)
def no_client_config() -> Iterator[None]:
    """Commands of the next test use no security that a test in this process has chosen."""
    yield
    client_config.use(None)


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The address of a broker that all tests of client commands share."""
    config = {"group.initial.rebalance.delay.ms": "0", "penstock.log.level": "error"}
    with broker_thread(config=config) as running:
        yield running.bootstrap


@pytest.fixture
def penstock(broker: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`penstock` against the shared broker, in this process: an interpreter's start per command adds up."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker)

    def command(*arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((input or "").encode())))
        code = run_here(*arguments)
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, output, errors)

    return command
