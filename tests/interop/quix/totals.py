"""A Quix Streams application: a running total per key, in a state store with a changelog topic.

It runs in the lab's environment. At least once: after a crash it may see a number again that its state
already has, and then says its total again.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application, State


def add(payment: dict[str, int], state: State) -> dict[str, Any]:
    seen: dict[str, int] = state.get("seen", default={"number": 0, "total": 0})
    if payment["number"] > seen["number"]:
        seen = {"number": payment["number"], "total": seen["total"] + payment["amount"]}
        state.set("seen", seen)
    return seen


def main(bootstrap: str, state_dir: str) -> None:
    application = Application(
        broker_address=bootstrap,
        consumer_group="totals",
        state_dir=state_dir,
        auto_offset_reset="earliest",
        processing_guarantee="at-least-once",
        commit_interval=0.2,
        loglevel="INFO",
        consumer_extra_config={"session.timeout.ms": 2000, "heartbeat.interval.ms": 200},
    )
    payments = application.topic("payments", key_deserializer="str", value_deserializer="json")
    totals = application.topic("totals", key_serializer="str", value_serializer="json")
    application.dataframe(payments).apply(add, stateful=True).to_topic(totals)
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
