"""The ports of brokers as child processes."""

from __future__ import annotations

import fcntl
import subprocess
import sys

import pytest

from lab import server
from lab.server import PORTS, free_ports

_ATTEMPT = """
import sys
from lab import server
print([server._reserve(int(port)) for port in sys.argv[1:]])
"""


@pytest.mark.process
def test_no_other_process_gets_the_same_ports() -> None:
    ports = [str(port) for port in free_ports(2)]
    command = [sys.executable, "-c", _ATTEMPT]
    assert subprocess.check_output([*command, *ports], text=True, timeout=60) == "[False, False]\n"


def test_a_port_is_given_once() -> None:
    first, second = free_ports(20), free_ports(20)
    assert len({*first, *second}) == 40
    assert set(first) <= set(PORTS)


def test_a_port_of_another_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert not server._reserve(1)
