"""`python -m chaos`: prints the schedule, the counts and the verdict; exits with 1 if that is bad."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from chaos.links import Links
from chaos.namespaces import Namespaces, are_allowed
from chaos.nemesis import KINDS
from chaos.queue_kills import KILLS, run_queues
from chaos.run import run
from chaos.workers import CLIENTS, DEFAULT_MEMBERS, JAVA_CLIENTS
from lab import LabError
from lab.apache_kafka import kafka_classpath
from tools.arguments import Arguments


def main() -> int:
    parser = Arguments(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things go wrong")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="which things and when")
    parser.add_argument("--brokers", type=int, default=3, choices=(3, 4, 5))
    parser.add_argument(
        "--faults", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=" ".join(KINDS)
    )
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs, which stay there")
    parser.add_argument(
        "--network",
        choices=("namespaces", "proxy"),
        help="how brokers are cut off: in network namespaces where root allows them, else by a proxy",
    )
    parser.add_argument(
        "--secured",
        action="store_true",
        help="SASL_SSL for clients, mutual TLS between brokers, encrypted disks",
    )
    parser.add_argument(
        "--members",
        nargs="*",
        choices=CLIENTS,
        default=list(DEFAULT_MEMBERS),
        metavar="CLIENT",
        help="the clients of the share group: " + " ".join(CLIENTS),
    )
    parser.add_argument(
        "--queues",
        action="store_true",
        help="a share group and a delay topic through kills in quick succession, and nothing else",
    )
    parser.add_argument("--kills", type=int, default=KILLS, help="with --queues: how many leaders are killed")
    parser.add_argument(
        "--in-turn",
        action="store_true",
        help="with --queues: leader, group coordinator and state leader of one share partition in turn",
    )
    given = parser.parse_args()
    if given.queues:
        print(f"seed {given.seed}, {given.kills} kills", flush=True)
        counted = run_queues(given.seed, given.kills, _say, given.keep, in_turn=given.in_turn)
        print("\n".join(counted.lines()))
        return 0 if counted.is_good else 1
    _prepare_java(given.members, given.secured)
    network = given.network or ("namespaces" if are_allowed() else "proxy")
    print(f"seed {given.seed}, {given.seconds:g} s, {given.brokers} brokers, {network}", flush=True)
    made = Namespaces(range(1, given.brokers + 1)) if network == "namespaces" else Links()
    verdict = run(
        given.seconds,
        given.seed,
        given.brokers,
        _say,
        given.faults,
        given.keep,
        made,
        java=True,
        secured=given.secured,
        members=given.members,
    )
    print("\n".join(verdict.lines()))
    return 0 if verdict.is_good else 1


def _prepare_java(members: Sequence[str], is_secured: bool) -> None:
    """Download the Java client. Without it, or with TLS, members that need it are left out: says so."""
    if not any(member in JAVA_CLIENTS for member in members):
        return
    if is_secured:
        print("no members of the Java client: they do not log in", flush=True)
        return
    try:
        kafka_classpath()
    except LabError as e:
        print(f"no members of the Java client: {e}", flush=True)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
