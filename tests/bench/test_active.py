"""The row of active clients: how many there can be, and that its frames are what a broker takes."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from bench.active import CLIENTS, clients_within
from bench.load import topic
from penstock.testing import broker


@pytest.mark.parametrize(
    ("open_files", "clients"), [(1 << 20, CLIENTS), (21_500, CLIENTS), (20_000, 9_200), (1024, 200)]
)
def test_the_limit_on_open_files_bounds_the_clients(open_files: int, clients: int) -> None:
    assert clients_within(open_files) == clients


@pytest.mark.process
def test_clients_produce_and_are_delivered_to() -> None:
    with broker() as running, topic(running.bootstrap, 2) as name:
        port = running.bootstrap.rpartition(":")[2]
        command = [sys.executable, "-m", "bench.active_clients", port, name, "2", "20", "1"]
        done = subprocess.run(command, input="go\n", capture_output=True, text=True, timeout=60, check=True)
    connected, sending, result = done.stdout.splitlines()
    seen = msgspec.json.decode(result)
    assert (connected, sending, seen["failed"]) == ("connected", "sending", 0)
    assert seen["produced"] and seen["fetches"]
