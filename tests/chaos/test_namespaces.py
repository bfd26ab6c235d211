"""A cut between namespaces is silence in that direction, and nothing stays behind."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from chaos.namespaces import Namespaces, NamespacesRefused

pytestmark = pytest.mark.process

PORT = 7007
PATIENCE_S = 60.0
#: longer than it takes to find a neighbour, so that only a cut is silent
SILENCE_S = 0.4
_ECHO = f"""
import socket, sys
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("", {PORT}))
print("ready", flush=True)
while True:
    here.sendto(*here.recvfrom(100))
"""
_REQUEST = f"""
import socket, sys
for line in sys.stdin:
    address, timeout = line.split()
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.settimeout(float(timeout))
    here.sendto(b"?", (address, {PORT}))
    try:
        print(here.recv(100).decode(), flush=True)
    except TimeoutError:
        print("silence", flush=True)
"""


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    made = Namespaces([1, 2])
    try:
        made.start()
    except NamespacesRefused as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.close()


def program(namespaces: Namespaces, node: int, text: str) -> subprocess.Popen[str]:
    command = [*namespaces.place(node).within, sys.executable, "-c", text]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_each_direction_is_cut_alone_and_clients_reach_all_brokers(namespaces: Namespaces) -> None:
    target = namespaces.place(2).host
    with program(namespaces, 2, _ECHO) as echo, program(namespaces, 1, _REQUEST) as requester:
        try:
            assert echo.stdout is not None
            assert echo.stdout.readline() == "ready\n"

            def answer(timeout_s: float = PATIENCE_S) -> str:
                assert requester.stdin is not None
                assert requester.stdout is not None
                requester.stdin.write(f"{target} {timeout_s}\n")
                requester.stdin.flush()
                return requester.stdout.readline().strip()

            assert answer() == "?"
            for way in ((1, 2), (2, 1)):
                namespaces.cut([way])
                assert answer(SILENCE_S) == "silence"
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                    client.settimeout(PATIENCE_S)
                    client.sendto(b"!", (target, PORT))
                    assert client.recv(100) == b"!"
                namespaces.heal()
                assert answer() == "?"
        finally:
            echo.kill()
            requester.kill()


def test_nothing_stays_behind() -> None:
    made = Namespaces([1, 2])
    try:
        made.start()
    except NamespacesRefused as error:
        pytest.skip(f"no network namespaces here: {error}")
    bridge = made._bridge
    made.close()
    assert bridge not in {name for _, name in socket.if_nameindex()}


def test_impossible_namespaces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NamespacesRefused):
        Namespaces([1]).start()
