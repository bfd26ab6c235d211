"""The process of the relays of a local cluster.

    DIR/relays/routes.json   the ports of all relays
               cut.json      the brokers that are cut off
               relays.pid    the process, while it runs
               relays.log    its errors

The process reads `cut.json` at its start and when it gets SIGUSR1.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from penstock.cli.cluster.broker_home import homes_in
from penstock.cli.cluster.processes import (
    Process,
    is_alive,
    read_pid_file,
    send_signal,
    spawn,
    uninterrupted,
    wait_for_end,
    write_pid_file,
)
from penstock.cli.cluster.relay import Relays, Route, sources_of
from penstock.cli.failure import Failure

__all__ = ["RelayHome"]

_READY: Final = b"ready"
_END_S: Final = 10.0


class RelayHome:
    """The relays of the cluster in a directory; `exists` is false for a cluster without relays."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / "relays"
        self._routes_file = self.path / "routes.json"
        self._cut_file = self.path / "cut.json"
        self._pid_file = self.path / "relays.pid"
        self._log_file = self.path / "relays.log"

    @property
    def exists(self) -> bool:
        return self._routes_file.is_file()

    def create(self, routes: Sequence[Route]) -> None:
        if not Path("/proc/net/tcp").exists():
            raise Failure("--relays needs Linux: relays find the source of a connection in /proc")
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self._routes_file, [route._asdict() for route in routes])

    def routes(self) -> list[Route]:
        return [Route(**route) for route in json.loads(self._routes_file.read_text())]

    def brokers(self) -> set[int]:
        """The brokers that can be cut off."""
        return {route.broker for route in self.routes()} if self.exists else set()

    def cut(self) -> set[int]:
        """The brokers that are cut off."""
        try:
            return set(json.loads(self._cut_file.read_text()))
        except (OSError, ValueError):
            return set()

    def cut_off(self, brokers: Collection[int]) -> None:
        """Cut exactly these brokers off."""
        process = self.process()
        if process is None:
            raise Failure(f"the relays of {self._directory} do not run: `penstock cluster start` starts them")
        _write(self._cut_file, sorted(brokers))
        send_signal(process, signal.SIGUSR1)

    def process(self) -> Process | None:
        process = read_pid_file(self._pid_file)
        return process if process is not None and is_alive(process) else None

    def start(self) -> None:
        """Start the process unless it runs, and wait until it listens. No broker is cut off at the start."""
        if not self.exists or self.process() is not None:
            return
        self._cut_file.unlink(missing_ok=True)
        with uninterrupted():
            process, output = spawn(["cluster", "relay", "--data", str(self._directory)], self._log_file)
            write_pid_file(self._pid_file, process)
        try:
            with os.fdopen(output, "rb") as lines:
                is_ready = lines.readline().startswith(_READY)
        finally:
            if not is_alive(process):
                self._pid_file.unlink(missing_ok=True)
        if not is_ready:
            raise Failure(f"the relays did not start: see {self._log_file}")

    def stop(self) -> None:
        process = self.process()
        is_ending = process is not None and send_signal(process, signal.SIGTERM)
        if process is not None and is_ending and wait_for_end([process], _END_S):
            send_signal(process, signal.SIGKILL)
        self._pid_file.unlink(missing_ok=True)

    def run(self) -> None:
        """Relay until SIGTERM or SIGINT, in the process that `start` has started."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        relays = Relays(lambda: sources_of(self._processes()))
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ends.set)
        loop.add_signal_handler(signal.SIGUSR1, lambda: relays.cut_off(self.cut()))
        await relays.open(self.routes())
        print("ready", flush=True)
        await ends.wait()
        relays.close()

    def _processes(self) -> dict[int, int]:
        """The process ids of the running brokers."""
        found = ((home.id, home.process()) for home in homes_in(self._directory))
        return {number: process.pid for number, process in found if process is not None}


def _write(path: Path, content: object) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content) + "\n")
    new.rename(path)
