"""`python -m conformance`: run the suites, compare with the record, and say what changed."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from conformance.brokers import BEARER, MUTUAL, PASSWORD, SECURED, Brokers, ExternalBrokers, Starter
from conformance.goals import Goal, load_goals
from conformance.kafka_python import KafkaPythonSuite
from conformance.kafka_tools import kafka_tools, penstock_tools
from conformance.librdkafka import LibrdkafkaSuite
from conformance.outcome import (
    REFERENCE,
    RESULTS,
    SECURED_REFERENCE,
    SECURED_RESULTS,
    Results,
    load,
    save,
)
from conformance.runner import Runner, subset
from conformance.scoreboard import PAGE, Change, compare, merge, render
from lab import LabError
from lab.apache_kafka import ACCESS_CONTROL
from lab.cluster import Cluster, kafka_cluster, penstock_cluster
from lab.secured_cluster import bearer_cluster, mutual_cluster, secured_cluster
from tools.arguments import Arguments

SUBSET_S = 240.0
GAINED_SHOWN = 10


def options() -> argparse.ArgumentParser:
    parser = Arguments(prog="python -m conformance", description=__doc__)
    parser.add_argument(
        "--subset", action="store_true", help="about four minutes of what is recorded as passed"
    )
    parser.add_argument("--update", action="store_true", help="record the verdicts and render the scoreboard")
    parser.add_argument("--force", action="store_true", help="with --update: also lower what was passed")
    parser.add_argument("--render", action="store_true", help="only render the scoreboard from the record")
    parser.add_argument("--against", choices=("penstock", "kafka"), default="penstock", help="what to start")
    parser.add_argument("--bootstrap", help="brokers that run already; recorded as --against says")
    parser.add_argument(
        "--suite", action="append", default=[], choices=("librdkafka", "librdkafka-consumer", "kafka-python")
    )
    parser.add_argument(
        "--secured",
        action="store_true",
        help="librdkafka's tests over SASL_SSL with ACLs, in a record of their own",
    )
    parser.add_argument("--milestone", action="append", default=[], help="instead of the current ones")
    parser.add_argument("--logs", type=Path, help="keep the tests' output here")
    parser.add_argument("only", nargs="*", help="tests whose name contains one of these")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    wanted = options().parse_args(arguments)
    # An exit like any other, so that the brokers that were started here end with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    record = _record(wanted)
    if not wanted.render:
        recorded = load(record)
        goals = _goals(wanted, recorded)
        if not goals:
            print("conformance: no test to run")
            return 0
        try:
            found = _run(wanted, goals, recorded, partial(_keep, record, wanted))
        except LabError as error:
            print(f"conformance: {error}", file=sys.stderr)
            return 1
        change = compare(found, recorded)
        _summarize(found, change)
        if wanted.secured:
            plain = compare(found, load(RESULTS if wanted.against == "penstock" else REFERENCE))
            print(f"passed over plaintext only: {' '.join(plain.lost) or 'none'}")
    if wanted.update or wanted.render:
        secured = load(SECURED_RESULTS), load(SECURED_REFERENCE)
        PAGE.write_text(render(load_goals(), load(RESULTS), load(REFERENCE), secured))
    return 1 if not wanted.render and change.lost and not wanted.force else 0


def _record(wanted: argparse.Namespace) -> Path:
    if wanted.secured:
        return SECURED_RESULTS if wanted.against == "penstock" else SECURED_REFERENCE
    return RESULTS if wanted.against == "penstock" else REFERENCE


def _goals(wanted: argparse.Namespace, recorded: Results) -> list[Goal]:
    goals = load_goals()
    milestones = wanted.milestone or (() if wanted.only else goals.milestones)
    selected = goals.select(wanted.suite, milestones, wanted.only)
    if wanted.against == "penstock" and not wanted.only:
        selected = [goal for goal in selected if not goals.waits_for(goal)]
    if wanted.secured:
        # Those with credentials of their own are secured in any run.
        selected = [g for g in selected if g.suite.startswith("librdkafka") and g.scenario not in SECURED]
    return subset(selected, recorded, SUBSET_S) if wanted.subset else selected


def _keep(record: Path, wanted: argparse.Namespace, found: Results) -> None:
    if not wanted.update:
        return
    folder = os.open(record.parent, os.O_RDONLY)
    try:
        # Read again, alone: other parts of the suites may run at the same time and record their verdicts.
        fcntl.flock(folder, fcntl.LOCK_EX)
        save(record, merge(found, load(record), lower=wanted.force))
    finally:
        os.close(folder)


def _run(
    wanted: argparse.Namespace, goals: Sequence[Goal], recorded: Results, keep: Callable[[Results], None]
) -> Results:
    with tempfile.TemporaryDirectory(prefix="penstock-conformance-") as temporary:
        folder = Path(temporary)
        logs = wanted.logs or folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        tools = (kafka_tools if wanted.against == "kafka" else penstock_tools)(folder / "kafka")
        starter: Starter = _kafka_with_access_control if wanted.against == "kafka" else penstock_cluster
        if wanted.secured:
            starter = partial(secured_cluster, wanted.against)
        secured: dict[str, Starter] = {
            MUTUAL: partial(mutual_cluster, wanted.against),
            BEARER: partial(bearer_cluster, wanted.against),
            PASSWORD: partial(secured_cluster, wanted.against),
        }
        brokers = ExternalBrokers(wanted.bootstrap) if wanted.bootstrap else Brokers(starter, folder, secured)
        with brokers:
            suites = (LibrdkafkaSuite(), LibrdkafkaSuite("consumer"), KafkaPythonSuite())
            runner = Runner(suites, brokers, logs, tools, lambda line: print(line, flush=True), keep)
            return runner.run(goals, recorded)


def _kafka_with_access_control(folder: Path, settings: Mapping[str, str], brokers: int) -> Cluster:
    # Controllers vote before they can know any rule, so those of a cluster must be above the rules.
    trusted = {"super.users": "User:ANONYMOUS"} if brokers > 1 else {}
    return kafka_cluster(folder, {**settings, **ACCESS_CONTROL, **trusted}, brokers)


def _summarize(found: Results, change: Change) -> None:
    for suite, outcomes in found.items():
        verdicts = [outcome.verdict for outcome in outcomes.values()]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
        print(f"{suite}: {counts}")
    if change.gained:
        print(f"newly passed (record with --update): {', '.join(change.gained[:GAINED_SHOWN])}", end="")
        print(f" and {more} more" if (more := len(change.gained) - GAINED_SHOWN) > 0 else "")
    if change.lost:
        print(f"REGRESSION, recorded as passed: {' '.join(change.lost)}")


if __name__ == "__main__":
    sys.exit(main())
