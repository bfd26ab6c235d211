"""One broker process of a machine.

Its standard input is a pipe that nothing is written to: the process ends when the supervisor is gone, also
after `kill -9`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.processes import process_of, write_pid_file
from penstock.cli.machine.log_lines import LineSplitter

__all__ = ["Child"]

log = get_logger("supervisor")
_READY: Final = b"ready "
_CHUNK: Final = 1 << 16


class Child:
    """A running broker. `is_ready` is true once it accepts connections."""

    def __init__(self, home: BrokerHome, process: asyncio.subprocess.Process, metrics_port: int) -> None:
        self.home = home
        self.metrics_port = metrics_port
        self.is_ready = False
        self.last_line = b""
        self._process = process

    @classmethod
    async def start(cls, home: BrokerHome, metrics_port: int, secrets: Mapping[str, str]) -> Child:
        """Start the broker of a folder; `secrets` are environment variables.

        Raises an OSError if the system cannot start it. A broker whose pid file cannot be written runs
        without one: other commands do not find it, but the supervisor does.
        """
        from penstock.model.config.environment import is_setting

        # The config file has the values of the environment variables.
        inherited = {k: v for k, v in os.environ.items() if not is_setting(k, v) and k != "PENSTOCK_CONFIG"}
        command = [sys.executable, "-P", "-m", "penstock", "up", "--config", str(home.config_file)]
        metrics = f"penstock.metrics.listener=127.0.0.1:{metrics_port}"
        process = await asyncio.create_subprocess_exec(
            *(*command, "--supervised", "--set", metrics),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**inherited, **secrets},
            # Ctrl-C goes to the whole process group; the supervisor decides when brokers end.
            start_new_session=True,
        )
        try:
            write_pid_file(home.pid_file, process_of(process.pid))
        except OSError as error:  # for example of a full disk, on which the broker itself can run
            log.warning("pid_file_not_written", broker=home.id, path=str(home.pid_file), error=str(error))
        return cls(home, process, metrics_port)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """Request a controlled shutdown."""
        try:
            self._process.send_signal(signal.SIGTERM)
        except ProcessLookupError:
            return

    async def run(self, write: Callable[[bytes], None], ready: Callable[[], None]) -> int:
        """Pass log lines on until the process ends, and call `ready` when it is; returns the exit code."""
        assert self._process.stdout is not None and self._process.stderr is not None
        await asyncio.gather(
            self._watch_output(self._process.stdout, ready), self._copy(self._process.stderr, write)
        )
        code = await self._process.wait()
        with contextlib.suppress(OSError):  # for example of a disk that is read-only now
            self.home.pid_file.unlink()
        return code

    async def _watch_output(self, output: asyncio.StreamReader, ready: Callable[[], None]) -> None:
        async for line in output:
            if line.startswith(_READY):
                self.is_ready = True
                ready()

    async def _copy(self, errors: asyncio.StreamReader, write: Callable[[bytes], None]) -> None:
        splitter = LineSplitter()
        while data := await errors.read(_CHUNK):
            self._pass_on(splitter.feed(data), write)
        self._pass_on(splitter.end(), write)

    def _pass_on(self, lines: list[bytes], write: Callable[[bytes], None]) -> None:
        for line in lines:
            self.last_line = line
            write(line)
