"""`python -m bench.cores`: the cost of many brokers on one machine, and how throughput grows with them.

The first part sends the same loads to a machine of 1, 2, 4, 8 and 16 brokers (`penstock up --cores N`) and
takes the processor time of all of them, and the time that they take without any load: a cost per message and
a cost per second. Each of N brokers has an Nth of the load, and a process that is woken less often costs more
per message. So the same part takes the cost of one broker, and of Apache Kafka, with only an Nth of the load.

The second part holds each broker to a small share of a core by a cgroup, so that 8 of them fit on two cores
with room for the load, and takes the throughput. Apache Kafka, one JVM, gets the sum of the shares.

Results go to `bench/results/cores.json`, and from there to `docs/cores.md`. QUICK=1 measures shorter,
`ROWS=cost` or `ROWS=limited` only one part, `ROUNDS=2` in less time. `NOTE=…` is printed on the page,
`RENDER=1` only renders it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.cores_load import LOADS, SMALL_BATCHES, Load, Stream, at_rate, saturated, streams
from bench.cores_page import AT_FULL_SPEED, COUNTS, IDLE, LIMITED, SHARE, alone_of, cost_of, write
from bench.process import family, thread_seconds
from bench.results import CORES, Run, commit, load, machine, merged, save, today, versions
from lab import LabError
from lab.apache_kafka import apache_kafka
from lab.cgroup import CpuGroup, cpu_limited
from lab.server import HOST, Server
from penstock.cli.cluster.listening import free_block
from tools.arguments import Arguments, count_from_environment

ROUNDS, QUICK_ROUNDS = 3, 1
SECONDS, QUICK_SECONDS = 8.0, 3.0
SETTLE_S = 2.0
WARM_S = 1.5
KAFKA_WARM_S = 8.0
START_S = 60.0
LATE = 1.1
"""A load that takes longer than this part of its time was not the load that was asked for."""
KAFKA_LATE = 2.0
"""Two cores are hardly enough for a JVM under the whole load. Its cost is one per message all the same."""
FIRST_ALONE = alone_of(LOADS[0])
NO_SYNC = {"penstock.flush": "os"}
_SHARED_MEMORY = "/dev/shm"
PARTS = ("cost", "limited")


def main() -> int:
    Arguments(prog="python -m bench.cores", description=__doc__).parse_args()
    # Brokers have sessions of their own, so this process must end them, also at a timeout.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.environ.get("RENDER"):
        write(load(CORES))
        return 0
    parts = os.environ.get("ROWS", "").replace(",", " ").split() or PARTS
    if unknown := sorted(set(parts) - set(PARTS)):
        print(f"cores: no part {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    is_quick = os.environ.get("QUICK", "") not in ("", "0")
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if is_quick else (ROUNDS, SECONDS)
    rounds = count_from_environment("ROUNDS", rounds)
    note = " ".join(filter(None, ["A quick run." if is_quick else "", os.environ.get("NOTE", "")]))
    run = Run(machine(), versions(), commit(), rounds, seconds, ["penstock", "kafka"], date=today())
    run.circumstances = note
    before = load(CORES)
    for number in range(1, rounds + 1):
        if "cost" in parts:
            for brokers in COUNTS:
                _add(run, number, IDLE, brokers, "penstock", costs(brokers, seconds))
                if brokers > 1:
                    _add(run, number, FIRST_ALONE, brokers, "penstock", alone(brokers, seconds))
            _add_kafka_alone(run, number, seconds)
        if "limited" in parts:
            for brokers in LIMITED:
                _add(run, number, AT_FULL_SPEED, brokers, "penstock", limited(brokers, seconds))
                _add(run, number, AT_FULL_SPEED, brokers, "kafka", limited_kafka(brokers, seconds))
        # After each round, because a run takes long.
        runs = merged(before, run)
        save(CORES, runs)
        write(runs)
    for failure in run.failures:
        print(f"cores: FAILED {failure}", file=sys.stderr)
    return 1 if run.failures else 0


def _add(
    run: Run, number: int, part: str, brokers: int, contender: str, found: Iterator[tuple[str, float]]
) -> None:
    """Add the values of a measurement as they come; a failure ends it, and the run goes on.

    `part` is the row that a failure is noted at: a later run of the row takes the note away.
    """
    shown = f"round {number} {contender} {brokers}"
    try:
        for row, value in found:
            print(f"  {shown} {row}: {value:,.4g}", file=sys.stderr)
            run.add(row, contender, {str(brokers): value})
    except (LabError, OSError, RuntimeError) as error:
        print(f"  {shown}: FAILED, {error}", file=sys.stderr)
        run.fail(part, f"{brokers} brokers, {contender}", error)


def costs(brokers: int, seconds: float) -> Iterator[tuple[str, float]]:
    """The cores of idle brokers, then seconds of processor time per million messages of each load.

    All processes count, the supervisor's too. The data is in memory, because the loads write more than a disk
    takes; a sync costs the same for a gigabyte of one broker and of sixteen.
    """
    with running(brokers, NO_SYNC, folder=_memory()) as server:
        time.sleep(SETTLE_S)
        before, began = thread_seconds(server.pid), time.perf_counter()
        time.sleep(seconds)
        yield IDLE, (thread_seconds(server.pid) - before) / (time.perf_counter() - began)
        for each in LOADS:
            with streams(server.bootstrap, brokers, each) as opened:
                at_rate(opened, each.requests_per_second, WARM_S)
                spent = _spent_at_rate(server, opened, each, seconds, LATE)
            yield cost_of(each), spent


def alone(parts: int, seconds: float) -> Iterator[tuple[str, float]]:
    """Seconds of processor time per million messages of one broker with so small a part of each load."""
    with running(1, NO_SYNC, folder=_memory()) as server:
        time.sleep(SETTLE_S)
        yield from _with_a_part(server, parts, seconds, LATE)


def _with_a_part(server: Server, parts: int, seconds: float, late: float) -> Iterator[tuple[str, float]]:
    for each in LOADS:
        with streams(server.bootstrap, 1, each) as opened:
            at_rate(opened, each.requests_per_second, WARM_S)
            spent = _spent_at_rate(server, opened, each, seconds, late, parts)
        yield alone_of(each), spent


def _add_kafka_alone(run: Run, number: int, seconds: float) -> None:
    """One Apache Kafka for all parts of the load: a JVM takes long to become fast."""
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-cores-", dir=_memory()) as folder:
            # The loads are large, and the data is in memory here, too.
            server = apache_kafka(Path(folder), {"log.segment.delete.delay.ms": "100"})
            server.start()
            try:
                for each in LOADS:
                    with streams(server.bootstrap, 1, each) as opened:
                        at_rate(opened, each.requests_per_second, KAFKA_WARM_S)
                for parts in COUNTS:
                    part = _with_a_part(server, parts, seconds, KAFKA_LATE)
                    _add(run, number, FIRST_ALONE, parts, "kafka", part)
            finally:
                server.stop()
    except (LabError, OSError, RuntimeError) as error:
        print(f"  round {number} kafka: FAILED, {error}", file=sys.stderr)
        run.fail(FIRST_ALONE, "kafka", error)


def _spent_at_rate(
    server: Server, opened: list[Stream], load: Load, seconds: float, late: float, parts: int = 1
) -> float:
    """Seconds of processor time of all processes per million messages of a part of `load`."""
    before = thread_seconds(server.pid)
    took = at_rate(opened, load.requests_per_second / parts, seconds)
    spent = thread_seconds(server.pid) - before
    if took > seconds * late:
        raise RuntimeError(f"load {load.name} took {took:.1f} s, not {seconds:g}: the machine is too busy")
    return spent / (load.messages_per_second / parts * seconds) * 1e6


def limited(brokers: int, seconds: float) -> Iterator[tuple[str, float]]:
    """Messages a second of brokers that have a share of a core each."""
    with running(brokers, NO_SYNC) as server, streams(server.bootstrap, brokers, SMALL_BATCHES) as opened:
        pids = _brokers(server, brokers)
        shares = [(f"broker-{number}", SHARE, [pid]) for number, pid in enumerate(pids)]
        with cpu_limited(shares) as groups:
            rate = saturated(opened, seconds, WARM_S)
            _check_limit(groups)
    yield AT_FULL_SPEED, rate * SMALL_BATCHES.messages_per_batch


def limited_kafka(brokers: int, seconds: float) -> Iterator[tuple[str, float]]:
    """Messages a second of one Apache Kafka that has the shares of so many brokers."""
    with tempfile.TemporaryDirectory(prefix="penstock-cores-") as folder:
        server = apache_kafka(Path(folder), {})
        server.start()
        try:
            with streams(server.bootstrap, 1, SMALL_BATCHES) as opened:
                # At full speed, so that the just-in-time compiler does not have to share what is left later.
                at_rate(opened, SMALL_BATCHES.requests_per_second, KAFKA_WARM_S)
                with CpuGroup("kafka", SHARE * brokers) as group:
                    group.add(family(server.pid))
                    rate = saturated(opened, seconds, WARM_S)
                    _check_limit([group])
        finally:
            server.stop()
    yield AT_FULL_SPEED, rate * SMALL_BATCHES.messages_per_batch


def _check_limit(groups: list[CpuGroup]) -> None:
    """The result is about the limit only if every group has reached it."""
    if not all(group.throttled_periods() for group in groups):
        raise RuntimeError("a broker did not use its share: the load is the limit")


def _memory() -> str | None:
    """A folder in memory; None, the usual place for temporary files, if there is none."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None


@contextmanager
def running(brokers: int, configs: Mapping[str, str], folder: str | None = None) -> Iterator[Server]:
    """A machine of `brokers` brokers on an empty folder, in `folder`, all of which know each other."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-cores-", dir=folder)))
        port = free_block(HOST, brokers + 1)
        program = [str(Path(sys.executable).with_name("penstock")), "up", "--cores", str(brokers)]
        program += ["--port", str(port), "--data", str(home / "data")]
        for key, value in configs.items():
            program += ["--set", f"{key}={value}"]
        server = Server("penstock", port, program, home / "penstock.log")
        stack.callback(server.stop)
        server.start()
        _wait_for_all(server, brokers)
        yield server


def _wait_for_all(server: Server, brokers: int) -> None:
    deadline = time.monotonic() + START_S
    while (known := server.knows()) < brokers:
        if time.monotonic() > deadline:
            raise LabError(f"{known} of {brokers} brokers are ready:\n{server.log_tail()}")
        time.sleep(0.1)


def _brokers(server: Server, count: int) -> list[int]:
    """The process ids of the brokers, which are the children of the supervisor."""
    _, *found = family(server.pid)
    if len(found) != count:
        raise RuntimeError(f"the supervisor has {len(found)} processes, not {count}")
    return found


if __name__ == "__main__":
    sys.exit(main())
