"""Starts one system after the other, runs its scenarios, and records what was observed in a `Run`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bench.compare.child import LoadProcess
from bench.compare.semantics import ours
from bench.compare.semantics.scenarios import OBSERVED, SCENARIOS, SYSTEMS
from bench.results import Run, commit, machine, today, versions
from lab.bridge_clients import bridge_python
from lab.elasticmq import VERSION as ELASTICMQ_VERSION
from lab.elasticmq import elasticmq_server
from lab.foreign import started
from lab.home import LabError, MissingTool
from lab.moto import VERSION as MOTO_VERSION
from lab.moto import moto_server
from lab.penstock import penstock
from lab.server import Server

__all__ = ["Observe", "new_run", "observe_all", "record"]

Observe: TypeAlias = Callable[[str], bool]
"""Runs the scenario of a name; returns true if its statement was observed to hold."""


def new_run() -> Run:
    return Run(machine(), versions(), commit(), rounds=1, scale=1.0, contenders=list(SYSTEMS), date=today())


def observe_all(run: Run) -> None:
    """Run all scenarios on all systems. A system that cannot be had is skipped with one line."""
    with tempfile.TemporaryDirectory(prefix="penstock-semantics-", ignore_cleanup_errors=True) as folder:
        for system in SYSTEMS:
            home = Path(folder, system)
            home.mkdir()
            try:
                server, python = _made(system, home)
            except LabError as error:
                is_short = isinstance(error, MissingTool)
                run.absent[system] = str(error) if is_short else "it could not be downloaded or installed"
                print(f"compare: SKIPPED {SYSTEMS[system]}, {error}", file=sys.stderr)
                continue
            try:
                with started(server), _observer(run, system, server, python) as observe:
                    record(run, system, observe)
            except Exception as error:  # noqa: BLE001 - the other systems are still useful
                run.fail("start", system, error)
                print(f"compare: FAILED to start {SYSTEMS[system]}: {error}", file=sys.stderr)


def _made(system: str, home: Path) -> tuple[Server, Path]:
    """The server of a system, not started, and its client's interpreter; `LabError` if they are not here."""
    if system == "penstock":
        return penstock(home, ours.SETTINGS), Path(sys.executable)
    python = bridge_python()
    return elasticmq_server(home) if system == "elasticmq" else moto_server(home), python


def record(run: Run, system: str, observe: Observe) -> None:
    """Add what `observe` tells of each scenario that the system has, or its failure."""
    for scenario in SCENARIOS:
        if system not in scenario.systems():
            continue
        shown = f"  semantics {system} {scenario.name}"
        try:
            is_observed = observe(scenario.name)
        except Exception as error:  # noqa: BLE001 - the other scenarios are still useful
            run.fail(scenario.name, system, error)
            print(f"{shown}: FAILED, {error}", file=sys.stderr)
        else:
            run.add(scenario.name, system, {OBSERVED: float(is_observed)})
            print(f"{shown}: {'yes' if is_observed else 'no'}", file=sys.stderr)


@contextmanager
def _observer(run: Run, system: str, server: Server, python: Path) -> Iterator[Observe]:
    """Runs scenarios on a server that runs: those of AWS in a client process, ours here."""
    if system == "penstock":
        yield partial(ours.observe, server.bootstrap)
        return
    options = {"service": "sns" if system == "moto-sns" else "sqs"}
    log = server.log.with_name("client.log")
    client = LoadProcess(python, "aws", server.bootstrap, options, log, package="bench.compare.semantics")
    try:
        emulator = {"ElasticMQ": ELASTICMQ_VERSION} if system == "elasticmq" else {"moto": MOTO_VERSION}
        run.versions |= emulator | {"boto3": client.call({"do": "version"})["version"]}
        yield lambda scenario: bool(client.call({"do": scenario})["observed"])
    finally:
        client.close()
