"""`python -m differential.shares`: runs the table and random requests; exits with 1 if an outcome differs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from differential.brokers import SETTINGS as COMMON
from differential.shares.cases import SETTINGS, Case, cases
from differential.shares.hostile import compare
from differential.shares.outcomes import DEVIATIONS, record, unexplained
from differential.shares.scene import Place
from differential.shares.table import run
from lab.apache_kafka import apache_kafka
from lab.penstock import penstock
from lab.server import HOST
from tools.arguments import Arguments


@contextmanager
def _place(kind: str) -> Iterator[Place]:
    settings = {**COMMON, **SETTINGS}
    with TemporaryDirectory(prefix="share-errors-") as folder:
        place = Path(folder)
        server = apache_kafka(place, settings) if kind == "kafka" else penstock(place, settings)
        server.start()
        try:
            yield Place(HOST, server.port)
        finally:
            server.stop()


def main() -> int:
    parser = Arguments(prog="python -m differential.shares", description=__doc__)
    parser.add_argument("--against", choices=("kafka", "penstock"), default="kafka")
    parser.add_argument("--seeds", type=int, default=10, help="random runs after the table")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=60, help="requests of a random run")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-table", action="store_true", help="random runs only")
    given = parser.parse_args()
    failed = 0
    with _place("penstock") as ours, _place(given.against) as theirs:
        if not given.no_table:
            wanted = [case for case in cases() if given.only in case.name]
            failed += _table(ours, theirs, wanted, given.against == "kafka" and not given.only)
        for seed in range(given.first, given.first + given.seeds):
            found = compare(ours, theirs, seed, given.steps, "hostile")
            failed += bool(found)
            print(f"seed {seed}: {found[0] if found else f'{given.steps} requests agree'}", flush=True)
    return min(failed, 1)


def _table(ours: Place, theirs: Place, wanted: Sequence[Case], is_recorded: bool) -> int:
    found, expected = run(ours, wanted), run(theirs, wanted)
    if is_recorded:
        record(expected)
    for name, outcome in found.items():
        if outcome != expected[name]:
            reason = DEVIATIONS.get(name)
            print(f"{'known' if reason else 'DIFFERS'} {name}: {outcome}, Kafka {expected[name]}", flush=True)
    different = unexplained(found, expected)
    print(f"{len(found)} cases, {len(different)} differ", flush=True)
    return len(different)


if __name__ == "__main__":
    sys.exit(main())
