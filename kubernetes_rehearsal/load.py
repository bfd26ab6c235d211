"""Sends ascending numbers until SIGTERM, and prints what was acknowledged. Runs in a pod, as a file alone.

usage: load.py TOPIC RATE
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from penstock.cli.client_config import librdkafka_settings, use

_SAYS_S = 2.0


def main(topic: str, rate: float) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    if config := os.environ.get("PENSTOCK_COMMAND_CONFIG"):
        use(Path(config))
    settings = {
        **librdkafka_settings(),
        "bootstrap.servers": os.environ["PENSTOCK_BOOTSTRAP"],
        "enable.idempotence": True,
        "delivery.timeout.ms": 900_000,
        "linger.ms": 5,
    }
    producer: Any = Producer(settings)
    found: dict[str, Any] = {"sent": 0, "acknowledged": 0, "failed": [], "slowest_s": 0.0}

    def delivered(began_s: float) -> Any:
        def done(error: Any, message: Any) -> None:
            if error is not None:
                found["failed"].append(f"{message.value().decode()}: {error}")
                return
            found["acknowledged"] += 1
            found["slowest_s"] = round(max(found["slowest_s"], time.monotonic() - began_s), 2)

        return done

    said_s = 0.0
    while not stopped:
        producer.produce(topic, str(found["sent"]), on_delivery=delivered(time.monotonic()))
        found["sent"] += 1
        producer.poll(1 / rate)
        if time.monotonic() - said_s > _SAYS_S:
            print(json.dumps(found), flush=True)
            said_s = time.monotonic()
    producer.flush(900)
    print(json.dumps({**found, "ended": True}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
