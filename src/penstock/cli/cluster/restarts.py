"""Restarts one broker of a cluster of this machine, with another interpreter or other configs if wanted."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.plan import EACH_BROKERS_OWN
from penstock.cli.cluster.processes import THIS_PROGRAM, Process, Program, program_of
from penstock.cli.cluster.starting import start_all
from penstock.cli.config_sources import read_config_file
from penstock.cli.failure import Failure, misused
from penstock.rolling.driver import RollStopped

__all__ = ["Change", "LocalRestarts", "changed_configs", "interpreter_in", "program_in"]

_VERSION_S: Final = 60.0
#: the version whose brokers have no --log-file
_WITHOUT_LOG_FILE: Final = "0.1.0"


class Change(NamedTuple):
    """What is different after the restart; None for what it was."""

    #: the version that the brokers shall run
    program: Program | None = None
    configs: Mapping[str, str] | None = None


class LocalRestarts:
    """The hook of a roll: `await restarts(broker)`."""

    def __init__(self, homes: Sequence[BrokerHome], change: Change, timeout_s: float) -> None:
        self._homes = {home.id: home for home in homes}
        self._change = change
        self._timeout_s = timeout_s

    async def __call__(self, broker: int) -> None:
        if broker not in self._homes:
            known = ", ".join(map(str, self._homes))
            raise RollStopped(
                f"broker {broker} is not one of this machine ({known}): roll it with --with COMMAND, or let "
                f"the cluster forget it if it is gone"
            )
        try:
            self._restart(self._homes[broker])
        except Failure as failure:
            raise RollStopped(str(failure)) from failure

    def _restart(self, home: BrokerHome) -> None:
        running = home.process()
        interpreter = None if running is None else program_of(running)
        earlier = None if interpreter is None else program_in(interpreter)
        self._stop(home)
        before = None if self._change.configs is None else home.alter(self._change.configs)
        try:
            self._start(home, self._change.program or earlier or THIS_PROGRAM)
        except Failure as failure:
            if before is not None:
                home.restore(before)
            if earlier is None:
                raise
            self._start(home, earlier)
            raise Failure(f"{failure}; it runs again as it did before") from failure

    def _stop(self, home: BrokerHome) -> None:
        """End the broker by a controlled shutdown, which moves its leaders first."""
        process: Process | None = home.signal(signal.SIGTERM)
        if process is not None:
            home.await_end(process, self._timeout_s)

    def _start(self, home: BrokerHome, program: Program) -> None:
        """Start the broker. One that recovers its logs for long is not started again: it runs."""
        try:
            start_all([home], self._timeout_s, program=program)
        except Failure:
            if home.process() is None:
                raise


def interpreter_in(environment: Path) -> str:
    """The interpreter of a virtual environment."""
    interpreter = environment / "bin" / "python"
    if not interpreter.exists():
        misused(f"{environment} is no virtual environment: it has no bin/python")
    return str(interpreter.absolute())


@cache
def program_in(interpreter: str) -> Program:
    """The Penstock that an interpreter runs; a Failure if it has none."""
    command = [interpreter, "-P", "-c", "import penstock; print(penstock.__version__)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failure(f"{interpreter} does not run Penstock: install it in that environment") from error
    return Program(interpreter, takes_log_file=done.stdout.strip() != _WITHOUT_LOG_FILE)


def changed_configs(path: Path, homes: Sequence[BrokerHome]) -> dict[str, str]:
    """The configs of a file for all brokers; refuses what no broker would start with."""
    from penstock.cli.config_sources import resolved_configs
    from penstock.model.config import BrokerConfig
    from penstock.security.mechanism_checks import check_mechanisms

    configs = dict(read_config_file(path).configs)
    own = sorted(EACH_BROKERS_OWN.intersection(configs))
    if own:
        misused(f"{own[0]} differs between brokers: leave it out of {path}")
    for home in homes:
        check_mechanisms(BrokerConfig(resolved_configs({**home.configs, **configs})))
    return configs
