"""Faults of local brokers for the console in development: signals to processes, and cuts by relays."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

from penstock.cli.cluster.broker_home import home_of, homes_in
from penstock.cli.cluster.processes import Process
from penstock.cli.cluster.relay_home import RelayHome
from penstock.cli.failure import Failure
from penstock.console.web.fault_routes import LocalBroker
from penstock.model.errors import PenstockError

__all__ = ["FaultFailed", "LocalFaults"]

_SIGNALS: Final = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT}
#: the buttons of each state
_FAULTS: Final = {
    "running": ("pause", "stop", "kill"),
    "paused": ("resume", "kill"),
    "stopped": ("start",),
    "cut off": ("reconnect", "kill"),
}


class FaultFailed(PenstockError):
    """A broker's process did not do what was wanted; the message has the reason."""


class LocalFaults:
    """The brokers in the folder of `penstock cluster start`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._relays = RelayHome(directory)

    def brokers(self) -> dict[int, LocalBroker]:
        cut, relayed = self._relays.cut(), self._relays.brokers()
        found = {}
        for home in homes_in(self._directory):
            state = _state(home.process())
            if state == "running" and home.id in cut:
                state = "cut off"
            faults = list(_FAULTS[state])
            if state == "running" and home.id in relayed:
                faults.insert(0, "cut off")
            found[home.id] = LocalBroker(state, tuple(faults))
        return found

    async def act(self, broker: int, fault: str) -> None:
        if fault in ("cut off", "reconnect"):
            self._cut(broker, fault == "cut off")
            return
        if fault in _SIGNALS:
            if home_of(self._directory, broker).signal(_SIGNALS[fault]) is None:
                raise FaultFailed(f"broker {broker} does not run")
            return
        # The command has the rules of starting and ending. A paused process cannot end in order.
        command = [
            sys.executable,
            "-P",
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
        if fault == "kill":
            # A broker that is started again is on the network.
            self._cut(broker, False)

    def _cut(self, broker: int, is_cut: bool) -> None:
        cut = self._relays.cut()
        if is_cut == (broker in cut):
            return
        try:
            self._relays.cut_off(cut | {broker} if is_cut else cut - {broker})
        except Failure as error:
            raise FaultFailed(str(error)) from error


def _state(process: Process | None) -> str:
    if process is None:
        return "stopped"
    try:
        status = Path(f"/proc/{process.pid}/stat").read_text()
    except OSError:
        return "running"
    # The state follows the name of the program, which may have parentheses of its own.
    return "paused" if status.rpartition(")")[2].split()[0] == "T" else "running"
