"""Brokers that may open few files: nothing is lost or taken for a failed disk, and clients are refused."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.broker.base.descriptors import Descriptors
from penstock.model.errors import ErrorCode
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, create_topic, produce, read_all, record, until

pytestmark = pytest.mark.process

#: more partitions than descriptors
PARTITIONS = 70
START = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
os.execv(sys.executable, [sys.executable, "-m", "penstock", "up", *sys.argv[2:]])
"""


class Process:
    """A broker as an operator starts it, with a limit of open files."""

    def __init__(self, limit: int, data: Path) -> None:
        self._log = data.with_suffix(".log")
        options = ["--data", str(data), "--port", "0", "--set", "log.segment.bytes=1048576"]
        with self._log.open("a") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-c", START, str(limit), *options], stdout=subprocess.PIPE, stderr=log
            )
        assert self.child.stdout is not None
        self.bootstrap = self.child.stdout.readline().split()[1].decode()

    def end(self, number: int) -> int:
        self.child.send_signal(number)
        return self.child.wait()

    def events(self) -> list[tuple[str, str]]:
        """(level, event) of all that was logged."""
        return re.findall(r" ?level=(\w+) .*?event=(\w+)", self._log.read_text())


@contextmanager
def started(limit: int, data: Path) -> Iterator[Process]:
    process = Process(limit, data)
    try:
        yield process
    finally:
        process.child.kill()
        process.child.wait()
        assert process.child.stdout is not None
        process.child.stdout.close()


def write(client: RawClient, topic: Topic, value: bytes) -> None:
    for partition in range(PARTITIONS):
        answer = produce(client, topic, batch_of([record(value)]), partition=partition)
        assert answer.error_code == ErrorCode.NONE


def values(client: RawClient, topic: Topic) -> set[tuple[bytes | None, ...]]:
    """What the partitions hold."""
    found = (read_all(client, topic, partition=partition) for partition in range(PARTITIONS))
    return {tuple(each.value for each in records) for records in found}


def test_a_broker_with_few_descriptors_serves_and_recovers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(64, data) as process, RawClient(process.bootstrap) as client:
        topic = create_topic(client, partitions=PARTITIONS)
        write(client, topic, b"1")
        host, port = process.bootstrap.split(":")
        with ExitStack() as crowd:
            for _ in range(80):
                crowd.enter_context(socket.create_connection((host, int(port))))
            write(client, topic, b"2")
        write(client, topic, b"3")
        process.end(signal.SIGKILL)

    with started(64, data) as process, RawClient(process.bootstrap) as client:
        assert values(client, topic) == {(b"1", b"2", b"3")}
        write(client, topic, b"4")
        assert process.end(signal.SIGTERM) == 0

    with started(64, data) as process, RawClient(process.bootstrap) as client:
        assert values(client, topic) == {(b"1", b"2", b"3", b"4")}
        events = process.events()
    assert not [event for level, event in events if level == "error"]
    assert events.count(("warning", "descriptor_limit_low")) == 3
    assert ("warning", "descriptors_exhausted") in events


LISTEN = """
import asyncio, resource, sys, uvloop
from penstock.net.listener import Listener
from penstock.net.limits import Limits
from penstock.net.server import Server

class Silent:
    def serve(self, connection, frame): return [bytes(4)]
    def connection_lost(self, connection): pass

async def main():
    server, listener = Server(Limits(), print), Listener("PLAINTEXT", "127.0.0.1", 0)
    await server.bind([listener])
    await server.serve(Silent())
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    print(listener.port, flush=True)
    await asyncio.sleep(600)

factory = uvloop.new_event_loop if sys.argv[1] == "uvloop" else asyncio.SelectorEventLoop
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""


def cpu_s(child: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the CPU time of a process")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_neither_event_loop_spins_when_it_cannot_accept(loop: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LISTEN, loop], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert child.stdout is not None
        address = ("127.0.0.1", int(child.stdout.readline()))
        with ExitStack() as crowd:
            for _ in range(60):
                crowd.enter_context(socket.create_connection(address))
            before = cpu_s(child)
            # Long enough for a loop that spins to show; nothing is to come of it.
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(1.5)
            assert cpu_s(child) - before < 0.75
        until(lambda: is_served(address))
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def is_served(address: tuple[str, int]) -> bool:
    """Whether a frame is answered. Until descriptors are closed, uvloop drops clients, and asyncio waits."""
    try:
        with socket.create_connection(address, timeout=60) as client:
            client.sendall(bytes(3) + b"\x01" + b"x")
            return bool(client.recv(1))
    except ConnectionError:
        return False


class Shortage:
    """An operation that finds no descriptor for the first few times."""

    def __init__(self, times: int, code: int = errno.EMFILE) -> None:
        self.times = times
        self.code = code
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise OSError(self.code, os.strerror(self.code))
        return "done"


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    made = Descriptors()
    made.open_reserve()
    yield made
    made.close_reserve()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_brief_use_borrows_spare_descriptors_and_returns_them(descriptors: Descriptors, code: int) -> None:
    spare = len(descriptors._spare)

    assert descriptors.briefly(Shortage(3, code)) == "done"

    assert len(descriptors._spare) == spare > 3


def test_the_reserve_ends(descriptors: Descriptors) -> None:
    with pytest.raises(OSError, match="Too many"):
        descriptors.briefly(Shortage(1000))


def test_other_errors_are_none_of_its_business(descriptors: Descriptors) -> None:
    spare = len(descriptors._spare)
    with pytest.raises(OSError, match="Input/output"):
        descriptors.briefly(Shortage(1, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        descriptors.open(Shortage(1, errno.EIO), vital=True)
    assert len(descriptors._spare) == spare


def test_files_that_can_be_opened_again_go_first(descriptors: Descriptors) -> None:
    spare, closed = len(descriptors._spare), []
    descriptors.on_shortage("a broker", lambda: closed.append(True))

    assert descriptors.open(Shortage(1), vital=True) == "done"
    assert (closed, len(descriptors._spare)) == ([True], spare)
    assert descriptors.open(Shortage(2), vital=True) == "done"
    assert len(descriptors._spare) == spare - 1
    with pytest.raises(OSError, match="Too many"):
        descriptors.open(Shortage(2), vital=False)
    assert descriptors.restore()
    assert len(descriptors._spare) == spare


def test_files_of_another_thread_are_left_alone(descriptors: Descriptors) -> None:
    descriptors._shortage["another"] = (-1, lambda: pytest.fail("not in this thread"))

    assert not descriptors.relieve()
    descriptors.forget("another")


@pytest.mark.parametrize(("in_use", "expected"), [(10, True), (100, False)])
def test_clients_leave_room_for_the_broker(
    descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch, in_use: int, expected: bool
) -> None:
    monkeypatch.setattr(descriptors, "limit", 100)
    monkeypatch.setattr(descriptors, "headroom", 20)
    monkeypatch.setattr(descriptors, "in_use", lambda: in_use)
    closed: list[bool] = []
    descriptors.on_shortage("a broker", lambda: closed.append(True))

    assert descriptors.has_room(79)
    assert closed == []
    assert descriptors.has_room(80) == expected
    assert closed == [True]


def test_refusals_are_logged_once_in_a_while(
    descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(
        "penstock.broker.base.descriptors.log.warning", lambda event, **_: events.append(event)
    )
    monkeypatch.setattr(descriptors, "limit", 0)

    assert not any(descriptors.has_room(number) for number in range(100))

    assert events == ["descriptors_exhausted"]


def test_in_use_counts_open_descriptors(descriptors: Descriptors) -> None:
    before = descriptors.in_use()
    with socket.socket():
        assert descriptors.in_use() == before + 1


def test_a_brief_open_closes_files_when_no_spare_descriptor_is_left() -> None:
    """For example the sync of a directory, in the middle of a truncation."""
    descriptors = Descriptors()
    closed: list[bool] = []

    def sync() -> str:
        if not closed:
            raise OSError(errno.EMFILE, "too many open files")
        return "synced"

    with pytest.raises(OSError, match="too many"):
        descriptors.briefly(sync)
    descriptors.on_shortage("broker", lambda: closed.append(True))
    assert descriptors.briefly(sync) == "synced"
    descriptors.on_shortage("broker", lambda: None)
    closed.clear()
    with pytest.raises(OSError, match="too many"):
        descriptors.briefly(sync)
