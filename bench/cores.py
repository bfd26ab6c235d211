"""`python -m bench.cores`: the cost of many brokers on one machine, and how throughput grows with them.

The first part sends the same load to a machine of 1, 2, 4, 8 and 16 brokers (`penstock up --cores N`) and
takes the processor time of all of them. The second part holds each broker to a small share of a core by a
cgroup, so that 8 of them fit on two cores with room for the load, and takes the throughput. Apache Kafka, one
JVM, gets the sum of the shares. Results go to `bench/results/cores.json`, and from there to `docs/cores.md`.
QUICK=1 measures shorter, `NOTE=…` is printed on the page, `RENDER=1` only renders it.
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

from bench.cores_load import MESSAGES_PER_BATCH, at_rate, saturated, streams
from bench.cores_page import AT_FULL_SPEED, COST, COUNTS, LIMITED, RATE, SHARE, write
from bench.process import family, thread_seconds
from bench.results import CORES, Run, commit, load, machine, save, today, versions
from lab import LabError
from lab.apache_kafka import apache_kafka
from lab.cgroup import CpuGroup, cpu_limited
from lab.server import HOST, Server
from penstock.cli.cluster.listening import free_block
from tools.arguments import Arguments

ROUNDS, QUICK_ROUNDS = 3, 1
SECONDS, QUICK_SECONDS = 8.0, 3.0
WARM_S = 1.0
KAFKA_WARM_S = 8.0
START_S = 60.0
NO_SYNC = {"penstock.flush": "os"}


def main() -> int:
    Arguments(prog="python -m bench.cores", description=__doc__).parse_args()
    # Brokers have sessions of their own, so this process must end them, also at a timeout.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.environ.get("RENDER"):
        write(load(CORES))
        return 0
    is_quick = os.environ.get("QUICK", "") not in ("", "0")
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if is_quick else (ROUNDS, SECONDS)
    note = " ".join(filter(None, ["A quick run." if is_quick else "", os.environ.get("NOTE", "")]))
    run = Run(machine(), versions(), commit(), rounds, seconds, ["penstock", "kafka"], date=today())
    run.circumstances = note
    for number in range(1, rounds + 1):
        for brokers in COUNTS:
            _measure(run, number, COST, brokers, "penstock", seconds)
        for brokers in LIMITED:
            _measure(run, number, AT_FULL_SPEED, brokers, "penstock", seconds)
            _measure(run, number, AT_FULL_SPEED, brokers, "kafka", seconds)
        # After each round, because a run takes long.
        save(CORES, [run])
        write([run])
    for failure in run.failures:
        print(f"cores: FAILED {failure}", file=sys.stderr)
    return 1 if run.failures else 0


def _measure(run: Run, number: int, row: str, brokers: int, contender: str, seconds: float) -> None:
    try:
        if row == COST:
            value = cost(brokers, seconds)
        elif contender == "penstock":
            value = limited(brokers, seconds)
        else:
            value = limited_kafka(brokers, seconds)
    except (LabError, OSError, RuntimeError) as error:
        print(f"  round {number} {row} {contender} {brokers}: FAILED, {error}", file=sys.stderr)
        run.fail(f"{row} {brokers}", contender, error)
        return
    print(f"  round {number} {row} {contender} {brokers}: {value:,.4g}", file=sys.stderr)
    run.add(row, contender, {str(brokers): value})


def cost(brokers: int, seconds: float) -> float:
    """Seconds of processor time per million messages, of the supervisor and all brokers."""
    with running(brokers) as server, streams(server.bootstrap, brokers) as opened:
        at_rate(opened, RATE, WARM_S)
        before = thread_seconds(server.pid)
        at_rate(opened, RATE, seconds)
        spent = thread_seconds(server.pid) - before
    return spent / (int(RATE * seconds) * MESSAGES_PER_BATCH) * 1e6


def limited(brokers: int, seconds: float) -> float:
    """Messages a second of brokers that have a share of a core each."""
    with running(brokers, NO_SYNC) as server, streams(server.bootstrap, brokers) as opened:
        pids = _brokers(server, brokers)
        shares = [(f"broker-{number}", SHARE, [pid]) for number, pid in enumerate(pids)]
        with cpu_limited(shares) as groups:
            rate = saturated(opened, seconds, WARM_S)
            _check_limit(groups)
    return rate * MESSAGES_PER_BATCH


def limited_kafka(brokers: int, seconds: float) -> float:
    """Messages a second of one Apache Kafka that has the shares of so many brokers."""
    with tempfile.TemporaryDirectory(prefix="penstock-cores-") as folder:
        server = apache_kafka(Path(folder), {})
        server.start()
        try:
            with streams(server.bootstrap, 1) as opened:
                # At full speed, so that the just-in-time compiler does not have to share what is left later.
                at_rate(opened, RATE, KAFKA_WARM_S)
                with CpuGroup("kafka", SHARE * brokers) as group:
                    group.add(family(server.pid))
                    rate = saturated(opened, seconds, WARM_S)
                    _check_limit([group])
        finally:
            server.stop()
    return rate * MESSAGES_PER_BATCH


def _check_limit(groups: list[CpuGroup]) -> None:
    """The result is about the limit only if every group has reached it."""
    if not all(group.throttled_periods() for group in groups):
        raise RuntimeError("a broker did not use its share: the load is the limit")


@contextmanager
def running(brokers: int, configs: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A machine of `brokers` brokers on an empty folder, all of which know each other."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-cores-")))
        port = free_block(HOST, brokers + 1)
        program = [str(Path(sys.executable).with_name("penstock")), "up", "--cores", str(brokers)]
        program += ["--port", str(port), "--data", str(folder / "data")]
        for key, value in (configs or {}).items():
            program += ["--set", f"{key}={value}"]
        server = Server("penstock", port, program, folder / "penstock.log")
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
