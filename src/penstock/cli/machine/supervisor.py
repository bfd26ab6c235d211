"""Runs the brokers of a machine: starts them, restarts those that end, and stops all on a signal.

Invariant: the broker that may vote ends last, because the controlled shutdown of the others needs a
controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger, put_line
from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.listening import free_port
from penstock.cli.failure import Failure
from penstock.cli.machine.child import Child
from penstock.cli.machine.layout import Machine
from penstock.cli.machine.log_lines import level_of, tagged

__all__ = ["Backoff", "Supervisor"]

log = get_logger("supervisor")
_METRICS_OFFSET: Final = 20_000


class _End(NamedTuple):
    """The end of a broker; `exit_code` is None if its process could not be started."""

    exit_code: int | None
    was_ready: bool
    reason: str


class Supervisor:
    """The brokers of one machine, by id. `children` has those that run."""

    def __init__(self, machine: Machine, secrets: Mapping[str, str]) -> None:
        self._machine = machine
        self._secrets = secrets
        self._stopped = asyncio.Event()
        self._all_ready = asyncio.Event()
        self._taken: set[int] = set()
        self.children: dict[int, Child] = {}
        self.restarts = {home.id: 0 for home in machine.homes}
        #: brokers that have not been ready since the supervisor started, although they could have been
        self._refused: set[int] = set()
        self._with_data = {home.id for home in machine.homes if _has_data(home)}
        #: why the machine did not start
        self._failure: Failure | None = None

    @property
    def brokers(self) -> list[int]:
        return [home.id for home in self._machine.homes]

    @property
    def unready(self) -> list[int]:
        """The brokers that do not accept connections."""
        return [id_ for id_ in self.brokers if id_ not in self.children or not self.children[id_].is_ready]

    def stop(self) -> None:
        """Begin to stop the machine."""
        self._stopped.set()

    async def run(self, ready: Callable[[str], None]) -> None:
        """Run until SIGTERM or SIGINT; calls `ready` with the common address once all brokers are ready.

        Raises a Failure if a broker without data ends before it is ready, or if all brokers do: then the
        configs are wrong. A broker with data is started again, because the others may run.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        keepers = {home.id: loop.create_task(self._keep(home)) for home in self._machine.homes}
        announcing = loop.create_task(self._announce(ready))
        await self._stopped.wait()
        announcing.cancel()
        voter = self._machine.voter
        last = [] if voter is None else [voter.id]
        errors: list[BaseException] = []
        for stage in ([id_ for id_ in keepers if id_ not in last], last):
            for id_ in stage:
                if id_ in self.children:
                    self.children[id_].end()
            # An error of one keeper must not keep the voter running.
            ends = await asyncio.gather(*(keepers[id_] for id_ in stage), return_exceptions=True)
            errors += [end for end in ends if end is not None]
        for error in errors:
            raise error
        if self._failure is not None:
            raise self._failure

    async def _announce(self, ready: Callable[[str], None]) -> None:
        await self._all_ready.wait()
        log.info("machine_started", machine=self._machine.name, brokers=len(self.brokers))
        ready(self._machine.address)

    async def _keep(self, home: BrokerHome) -> None:
        """Start a broker again whenever it ends, until the machine stops."""
        loop, backoff, was_ready = asyncio.get_running_loop(), Backoff(), False
        while not self._stopped.is_set():
            began = loop.time()
            end = await self._run_once(home)
            was_ready = was_ready or end.was_ready
            if self._stopped.is_set():
                return
            if not was_ready and self._is_refused(home, end):
                self._fail(home, end)
                return
            pause_s = backoff.after(loop.time() - began)
            self.restarts[home.id] += 1
            if end.exit_code is None:
                log.error("broker_not_started", broker=home.id, error=end.reason, restart_in_s=pause_s)
            else:
                log.warning("broker_ended", broker=home.id, exit_code=end.exit_code, restart_in_s=pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause_s)

    async def _run_once(self, home: BrokerHome) -> _End:
        """Run a broker until it ends. An error of the system at its start is an end without an exit code."""
        try:
            child = await Child.start(home, self._metrics_port(home), self._secrets)
        except (OSError, Failure) as error:
            return _End(None, False, str(error))
        self.children[home.id] = child
        if self._stopped.is_set():
            child.end()
        code = await child.run(lambda line: put_line(tagged(line, home.id), level_of(line)), self._note_ready)
        del self.children[home.id]
        reason = child.last_line.decode(errors="replace").removeprefix("penstock: ")
        return _End(code, child.is_ready, reason or "it logged nothing")

    def _note_ready(self) -> None:
        if not self.unready:
            self._all_ready.set()

    def _is_refused(self, home: BrokerHome, end: _End) -> bool:
        """Whether the machine cannot start, given the end of a broker that was never ready.

        A broker that was killed, for example while it recovered its log, has not refused its configs.
        """
        if end.exit_code is None or end.exit_code > 0:
            self._refused.add(home.id)
        is_new = home.id not in self._with_data
        return is_new or self._refused.issuperset(self.brokers)

    def _fail(self, home: BrokerHome, end: _End) -> None:
        self._failure = self._failure or Failure(f"broker {home.id} did not start: {end.reason}")
        self.stop()

    def _metrics_port(self, home: BrokerHome) -> int:
        wanted = int(home.address.rpartition(":")[2]) + _METRICS_OFFSET
        port = free_port("127.0.0.1", wanted, self._taken)
        # A restarted broker may have the same port again.
        self._taken.discard(wanted)
        return port


def _has_data(home: BrokerHome) -> bool:
    """Whether a broker has run on its folder before; true if a disk cannot tell."""
    try:
        return any((Path(each) / "meta.json").exists() for each in home.configs["log.dirs"].split(","))
    except OSError:
        return True


_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0
#: a broker that ran for this long starts again after the first pause
_STEADY_S: Final = 60.0


class Backoff:
    """Doubles the pause with each end, until the broker has run for a minute."""

    def __init__(self) -> None:
        self._next_s = _FIRST_S

    def after(self, ran_s: float) -> float:
        """The pause after an end; `ran_s` is the time for which the broker ran."""
        if ran_s >= _STEADY_S:
            self._next_s = _FIRST_S
        pause_s, self._next_s = self._next_s, min(_LONGEST_S, self._next_s * 2)
        return pause_s
