"""A broker as a child process: started, asked whether it answers, stopped by its process id.

Both kinds, ours and Apache Kafka, are the same to whoever measures them: an address, a process, a log file.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.home import LabError

HOST = "127.0.0.1"
METADATA_ALL_TOPICS_V0 = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 0)
API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 1, -1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def ask(address: tuple[str, int], request: bytes, timeout: float) -> bytes:
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


@dataclass(slots=True)
class Server:
    """One broker process. `start` returns when Metadata is answered; `stop` when the process is gone."""

    name: str
    port: int
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 60.0
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def start(self) -> float:
        """Start it; seconds until the first Metadata answer."""
        with self.log.open("ab") as output:
            began = time.perf_counter()
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        while (elapsed := time.perf_counter() - began) < self.start_timeout:
            if self.process.poll() is not None:
                break
            if self._answers(METADATA_ALL_TOPICS_V0, timeout=5.0):
                return time.perf_counter() - began
            time.sleep(0.002)
        self.stop()
        raise LabError(f"{self.name} gave no answer after {elapsed:.1f} s:\n{self.log_tail()}")

    def healthy(self) -> bool:
        """Alive, and answers a fresh connection."""
        alive = self.process is not None and self.process.poll() is None
        return alive and self._answers(API_VERSIONS_V0, timeout=20.0)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for one that does not listen."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def log_tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _answers(self, request: bytes, timeout: float) -> bool:
        try:
            return len(ask((HOST, self.port), request, timeout)) > 4
        except OSError:
            return False
