"""Rounds of all workloads on all systems of a class, in turn.

Single servers of a class run side by side, and the rounds alternate between them. An idle cluster takes a
good part of a core, so clusters run one after the other, and each round starts each of them anew.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bench.compare.classes import DurabilityClass
from bench.compare.losses import kill, power_failure, start
from bench.compare.systems import made
from bench.compare.workloads import WORKLOADS, Bench, Size, Workload
from bench.results import Run
from bench.table import Values
from lab.home import LabError, MissingTool

__all__ = ["Comparison"]

OwnServers: TypeAlias = Callable[[str, DurabilityClass, Path, Size], Iterable[tuple[str, Values]]]


class Comparison:
    """One run; it fills `run`."""

    def __init__(self, run: Run, python: Path, size: Size, rows: Collection[str] = ()) -> None:
        self.run = run
        self._python = python
        self._size = size
        self._rows = rows
        """Empty for all."""

    def measure(self, durability: DurabilityClass) -> None:
        """Measure one class."""
        if durability.nodes == 1:
            self._side_by_side(durability, self._contenders(durability), self._size.rounds)
        else:
            for _ in range(self._size.rounds):
                for contender in self._contenders(durability):
                    self._side_by_side(durability, [contender], rounds=1)
        for number in range(1, self._size.rounds + 1):
            for contender in self._contenders(durability):
                self._own_servers(f"round {number}", contender, durability, "start", start)
        for contender in self._contenders(durability):
            self._own_servers("once", contender, durability, "kill", kill)
            if durability.nodes == 1 or self._size.has_power_failures_of_clusters:
                self._own_servers("once", contender, durability, "power", power_failure)

    def _contenders(self, durability: DurabilityClass) -> list[str]:
        """The contenders of a class, without those that this machine turned out not to have."""
        known = (name for name in durability.contenders if name in self.run.contenders)
        return [name for name in known if name not in self.run.absent]

    def _absent(self, contender: str, error: LabError) -> None:
        reason = str(error) if isinstance(error, MissingTool) else "it could not be downloaded or built"
        self.run.absent[contender] = reason
        print(f"compare: SKIPPED {contender}, {error}", file=sys.stderr)

    def _side_by_side(self, durability: DurabilityClass, contenders: Sequence[str], rounds: int) -> None:
        workloads = [each for each in WORKLOADS if self._wants(each.rows)]
        if not workloads:
            return
        with ExitStack() as running:
            benches = [
                bench
                for contender in contenders
                if (bench := self._started(running, contender, durability)) is not None
            ]
            self._warm_up(benches, workloads if self._size.warms_all else workloads[:1])
            for number in range(1, rounds + 1):
                for workload in workloads:
                    for bench in benches:
                        if workload.applies(bench):
                            work = partial(workload.measure, bench)
                            label = f"round {number}"
                            is_good = self._add(label, durability, bench.system.name, workload.rows, work)
                            if not is_good:
                                # A client may still be at a job whose result would be taken for the next.
                                bench.close()

    def _started(self, running: ExitStack, contender: str, durability: DurabilityClass) -> Bench | None:
        folder = Path(
            running.enter_context(
                tempfile.TemporaryDirectory(prefix="penstock-compare-", ignore_cleanup_errors=True)
            )
        )
        try:
            system = made(contender, durability, folder)
        except LabError as error:
            self._absent(contender, error)
            return None
        running.callback(system.stop)
        try:
            system.start()
        except LabError as error:
            self.run.fail(durability.row("start"), contender, error)
            print(f"compare: FAILED to start {contender}: {error}", file=sys.stderr)
            return None
        bench = Bench(system, self._python, self._size, folder / "clients.log")
        running.callback(bench.close)
        return bench

    def _warm_up(self, benches: Sequence[Bench], workloads: Sequence[Workload]) -> None:
        """A discarded round: a just-in-time compiler, the page cache and all buffers warm up."""
        seconds = self._size.warm_seconds
        for bench in benches:
            bench.size = replace(self._size, seconds=seconds, latency_seconds=seconds)
            for workload in workloads:
                try:
                    list(workload.measure(bench) if workload.applies(bench) else ())
                except Exception as error:  # noqa: BLE001 - the rounds that follow report it
                    print(f"  warm-up of {bench.system.name}: FAILED, {error}", file=sys.stderr)
                    bench.close()
            bench.size = self._size

    def _own_servers(
        self, label: str, contender: str, durability: DurabilityClass, row: str, measure: OwnServers
    ) -> None:
        if self._wants((row,)):
            work = partial(measure, contender, durability, self._python, self._size)
            self._add(label, durability, contender, (row,), work)

    def _wants(self, rows: Collection[str]) -> bool:
        return not self._rows or any(row in self._rows for row in rows)

    def _add(
        self,
        label: str,
        durability: DurabilityClass,
        contender: str,
        rows: Sequence[str],
        work: Callable[[], Iterable[tuple[str, Values]]],
    ) -> bool:
        """Add the rows of a piece of work as they come, or the failure of those that do not come."""
        left, began = list(rows), time.perf_counter()
        shown = f"{label} {durability.name} {contender}"
        try:
            for row, values in work():
                left.remove(row)
                self.run.add(durability.row(row), contender, values)
                said = ", ".join(f"{metric} {value:,.4g}" for metric, value in values.items())
                print(f"  {shown} {row} ({time.perf_counter() - began:.1f} s): {said}", file=sys.stderr)
        except Exception as error:  # noqa: BLE001 - the other measurements of a long run are still useful
            print(f"  {shown} {'+'.join(left)}: FAILED, {error}", file=sys.stderr)
            for row in left:
                self.run.fail(durability.row(row), contender, error)
        return not left
