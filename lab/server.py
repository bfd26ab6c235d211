"""A broker as a child process: starts it, waits until it responds, and stops it by its process id.

Penstock and Apache Kafka have the same interface: an address, a process, a log file. The process can be
killed, suspended and resumed.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lab.home import LabError

HOST = "127.0.0.1"
PORTS = range(13_000, 19_000)
"""Below the ephemeral ports, so that no outgoing connection takes the port of a broker that is down, and none
of those that `penstock` chooses by itself (from 20,000 on)."""
METADATA_ALL_TOPICS_V0 = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 0)
DESCRIBE_CLUSTER_V0 = struct.pack(">hhih", 60, 0, 1, -1) + bytes(3)
API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 1, -1)
_reserved: set[int] = set()


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports on which no process listens, and which `free_ports` gives to no other process.

    They stay with this process until it ends: its brokers may start late, and come and go.
    """
    found: list[int] = []
    with ExitStack() as probes:
        while len(found) < count:
            probe = probes.enter_context(socket.socket())
            port = random.choice(PORTS)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            if _reserve(port):
                found.append(port)
    return found


def _reserve(port: int) -> bool:
    """Lock the byte of the port in a file of all processes; the system unlocks it when this process ends."""
    if port in _reserved:
        return False
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _reserved.add(port)
    return True


@cache
def _reservations() -> int:
    """Open until the end: closing any descriptor of the file would unlock all bytes."""
    path = Path(tempfile.gettempdir()) / f"penstock-lab-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def call(address: tuple[str, int], request: bytes, timeout: float) -> bytes:
    """Send one request frame on a connection of its own and return the whole response frame."""
    with socket.create_connection(address, timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        prefix = stream.read(4)
        if len(prefix) < 4:
            raise ConnectionResetError("connection closed before an answer")
        (size,) = struct.unpack(">i", prefix)
        return stream.read(size)


def described_brokers(answer: bytes) -> int:
    """The number of brokers in a DescribeCluster v0 response: one byte, as long as there are few."""
    at = 4 + 1 + 4 + 2  # correlation id, tags, throttle time, error code
    for _ in ("error message", "cluster id"):
        at += max(1, answer[at])  # a byte of length plus one, and the text
    return answer[at + 4] - 1  # after the controller's id


@dataclass(slots=True)
class Server:
    """One broker process. `start` returns when Metadata is answered; `stop` when the process is gone."""

    name: str
    port: int
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 180.0
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    def launch(self) -> None:
        """Start the process, and do not wait for it."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def start(self) -> float:
        """Start it; seconds until the first Metadata answer."""
        began = time.perf_counter()
        self.launch()
        self.wait_until_ready()
        return time.perf_counter() - began

    def wait_until_ready(self) -> None:
        """Wait for the first answer of a process that was launched; ends it where none comes in time."""
        began = time.perf_counter()
        while (elapsed := time.perf_counter() - began) < self.start_timeout and self.runs():
            if self._answers(METADATA_ALL_TOPICS_V0, timeout=5.0):
                return
            time.sleep(0.002)
        self.stop()
        raise LabError(f"{self.name} gave no answer after {elapsed:.1f} s:\n{self.log_tail()}")

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def knows(self) -> int:
        """How many brokers of its cluster it knows that are not fenced; 0 while it does not answer."""
        try:
            return described_brokers(call((HOST, self.port), DESCRIBE_CLUSTER_V0, timeout=5.0))
        except OSError:
            return 0

    def healthy(self) -> bool:
        """Alive, and answers a fresh connection."""
        return self.runs() and self._answers(API_VERSIONS_V0, timeout=20.0)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for one that does not listen."""
        if self.process is None:
            return
        self.process.terminate()
        # One that was paused would not notice.
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill(self) -> None:
        """SIGKILL: it has no time for anything, and its sockets close at once."""
        assert self.process is not None, "not started"
        self.process.kill()
        self.process.wait()
        self.process = None

    def pause(self) -> None:
        """SIGSTOP: it does nothing any more, and its connections stay."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> float:
        """Stop it properly and start it again; seconds of the start."""
        self.stop()
        return self.start()

    def log_tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _answers(self, request: bytes, timeout: float) -> bool:
        try:
            return len(call((HOST, self.port), request, timeout)) > 4
        except OSError:
            return False
