"""`python -m penstock.spark.exactly_once BOOTSTRAP`: shows decisions; `--finish` commits them.

A batch write whose driver died after its decision, and a query that is not started again, leave transactions
that are decided and open. Committing them again does no harm if they have ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.model.errors import PenstockError
from penstock.reading.connection import Cluster
from penstock.spark.exactly_once.coordinators import Coordinators
from penstock.spark.exactly_once.decisions import Decision, DecisionDamaged
from penstock.spark.exactly_once.journal import Journal
from penstock.spark.exactly_once.settings import DECISIONS_TOPIC
from penstock.spark.options import KAFKA, GivenOptions

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    given = _parse(arguments)
    options = dict(each.split("=", 1) for each in given.option if "=" in each)
    named = {KAFKA + name: value for name, value in options.items()}
    try:
        endpoint = GivenOptions({"kafka.bootstrap.servers": given.bootstrap, **named}, ()).endpoint()
        cluster = Cluster(endpoint)
        try:
            decisions = Journal(cluster, given.topic).all()
            for decision in sorted(decisions, key=lambda each: each.at_ms):
                print(_line(decision))
                if given.finish:
                    Coordinators(cluster).commit(decision.transactions, is_resumed=True)
        finally:
            cluster.close()
    except (PenstockError, DecisionDamaged, ValueError) as e:
        print(f"penstock.spark.exactly_once: {e}", file=sys.stderr)
        return 1
    done = ", all committed" if given.finish else ""
    print(f"{len(decisions)} decisions in {given.topic}{done}")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m penstock.spark.exactly_once", description=__doc__)
    parser.add_argument("bootstrap", help="host:port,…")
    parser.add_argument("--topic", default=DECISIONS_TOPIC, help="the option decisionsTopic of the queries")
    parser.add_argument("--finish", action="store_true", help="commit the transactions of all decisions")
    parser.add_argument(
        "-X", dest="option", action="append", default=[], metavar="NAME=VALUE", help="security.protocol=SSL …"
    )
    return parser.parse_args(arguments)


def _line(decision: Decision) -> str:
    at = datetime.fromtimestamp(decision.at_ms / 1000, UTC).isoformat(timespec="seconds")
    count, rows = len(decision.transactions), sum(each.rows for each in decision.transactions)
    return f"{at} {decision.query} batch {decision.batch}: {count} transactions, {rows} rows"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
