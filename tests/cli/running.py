"""`penstock` as a process, and a broker that is one, too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import typer.main

from penstock.cli.app import app
from penstock.cli.failure import guarded

PENSTOCK = [sys.executable, "-m", "penstock"]
#: a command that starts Spark takes a minute and a half on a machine with five times as much work as cores
WAIT_S = 240


class Command(Protocol):
    def __call__(self, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]: ...


def lines(text: str) -> list[str]:
    return text.splitlines()


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def run_here(*arguments: str) -> int:
    """Run `penstock` in this process; its exit code.

    Typer makes the tree of all commands whenever its app is called, which takes a quarter of a second.
    """
    command = _command()
    return guarded(lambda: command(list(arguments), prog_name="penstock", standalone_mode=False))


def run(
    *arguments: str, input: str | None = None, bootstrap: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `penstock` to its end. Whatever it did, no traceback may have reached the user."""
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap or "127.0.0.1:1"}
    done = subprocess.run(
        [*PENSTOCK, *arguments], input=input, capture_output=True, text=True, timeout=WAIT_S, env=environment
    )
    assert "Traceback" not in done.stderr
    return done


@contextmanager
def interruptible(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    # A test run in the background may have SIGINT ignored, and children would inherit that.
    with subprocess.Popen(
        [*PENSTOCK, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        yield process


def consecutive_free_ports(count: int) -> int:
    """The first of some free ports, below those that systems give to clients."""
    for first in range(21_000, 31_000, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


@contextmanager
def running_broker(*arguments: str, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker on a free port, and the address on its ready line."""
    process = subprocess.Popen(
        [*PENSTOCK, "up", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), process.stderr.read()
        yield process, line.split()[1]
    finally:
        process.kill()
        process.communicate()
