"""The command against a broker that all tests of client commands share."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.cli.app import app
from penstock.cli.failure import guarded
from tests.cli.running import Command, running_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The address of a broker that all tests of client commands share."""
    quick = ("--set", "group.initial.rebalance.delay.ms=0")
    with running_broker("--memory", "--log-level", "error", *quick) as (_, address):
        yield address


@pytest.fixture
def penstock(broker: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`penstock` against the shared broker, in this process: an interpreter's start per command adds up."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker)

    def command(*arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((input or "").encode())))
        code = guarded(lambda: app(list(arguments), prog_name="penstock", standalone_mode=False))
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, output, errors)

    return command
