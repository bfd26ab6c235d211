"""A load client as a child process, which runs one job after the other (`clients.protocol`)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeAlias

from lab.home import REPOSITORY

__all__ = ["Job", "JobFailed", "LoadProcess"]

Job: TypeAlias = dict[str, Any]
_START_S = 60.0
_CALL_S = 180.0
_END_S = 5.0


class JobFailed(RuntimeError):
    """The client answered that the job failed, or did not answer in time."""


class LoadProcess:
    """One client process. Use it from one thread; `close` ends it."""

    def __init__(
        self,
        python: Path,
        module: str,
        address: str,
        options: Job,
        log: Path,
        package: str = "bench.compare.clients",
    ) -> None:
        self._common = {"address": address, "options": options}
        self._module = module
        self._errors: IO[bytes] = log.open("ab")
        self._buffer = b""
        self._process = subprocess.Popen(
            [str(python), "-m", f"{package}.{module}"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            start_new_session=True,
        )

    def prepare(self, job: Job) -> None:
        """Send a job that is timed; returns when the client is connected and waits."""
        self._send({**self._common, **job})
        answer = self._answer(_START_S)
        if "ready" not in answer:
            raise JobFailed(f"{self._module}: {answer.get('failed', answer)}")

    def go(self) -> None:
        self._send({"go": True})

    def wait_for_acknowledgement(self) -> None:
        """Wait until the first message of a log is acknowledged."""
        if "acknowledged" not in self.result():
            raise JobFailed(f"{self._module}: no message was acknowledged")

    def stop_job(self) -> None:
        """End a job that has no end of its own."""
        self._send({"stop": True})

    def result(self, timeout_s: float = _CALL_S) -> Job:
        answer = self._answer(timeout_s)
        if "failed" in answer:
            raise JobFailed(f"{self._module}: {answer['failed']}")
        return answer

    def call(self, job: Job) -> Job:
        """Run a job that is not timed."""
        self._send({**self._common, **job})
        return self.result()

    def timed(self, job: Job, around: Callable[[], float]) -> tuple[Job, float]:
        """Run a job; its result, and how much `around()` grew in its time."""
        self.prepare(job)
        before = around()
        self.go()
        found = self.result()
        return found, around() - before

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _send(self, message: Job) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise JobFailed(f"{self._module} has ended with {self._process.wait()}") from error

    def _answer(self, timeout_s: float) -> Job:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        output = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(output, 1 << 20) if ready else b""
            if not data:
                # A client that is late answers this job at some time, so it cannot take the next one.
                self._process.kill()
                why = "has ended" if ready else f"gave no answer in {timeout_s:g} s"
                raise JobFailed(f"{self._module} {why}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: Job = json.loads(line)
        return answer
