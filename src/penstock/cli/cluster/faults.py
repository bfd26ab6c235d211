"""Faults of local brokers for the console in development: signals to the processes of a cluster's folder."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

from penstock.cli.cluster.broker_home import home_of, homes_in
from penstock.cli.cluster.processes import Process
from penstock.model.errors import PenstockError

__all__ = ["FaultFailed", "LocalFaults"]

_SIGNALS: Final = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT}


class FaultFailed(PenstockError):
    """A broker's process did not do what was wanted; the message has the reason."""


class LocalFaults:
    """The brokers in the folder of `penstock cluster start`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def brokers(self) -> dict[int, str]:
        return {home.id: _state(home.process()) for home in homes_in(self._directory)}

    async def act(self, broker: int, fault: str) -> None:
        if fault in _SIGNALS:
            if home_of(self._directory, broker).signal(_SIGNALS[fault]) is None:
                raise FaultFailed(f"broker {broker} does not run")
            return
        # The command has the rules of starting and ending. A paused process cannot end in order.
        command = [
            sys.executable,
            "-m",
            "penstock",
            "broker",
            fault,
            str(broker),
            "--data",
            str(self._directory),
        ]
        child = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await child.communicate()
        if child.returncode:
            raise FaultFailed(errors.decode(errors="replace").strip() or f"broker {broker}: {fault} failed")


def _state(process: Process | None) -> str:
    if process is None:
        return "stopped"
    try:
        status = Path(f"/proc/{process.pid}/stat").read_text()
    except OSError:
        return "running"
    # The state follows the name of the program, which may have parentheses of its own.
    return "paused" if status.rpartition(")")[2].split()[0] == "T" else "running"
