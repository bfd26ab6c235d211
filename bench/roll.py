"""What producers notice while all three brokers of a cluster are restarted, one after the other.

Each broker leads one partition with three replicas, to which a producer sends at a steady rate. The roll is
that of `penstock cluster roll --restart` for every contender: a broker ends with SIGTERM, the next one
follows when all replicas are in sync, and leaders move back. A message is late by the time from when its
acknowledgement was due to when it came; it is due at the producer's rate, after the fastest one. An
acknowledged record that is missing or there twice fails the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench.cluster import BROKERS, CLIENT, running, wait_for_all_replicas
from bench.failover import check_written
from bench.load import topic
from bench.requests import p99
from bench.steady import RATE, steady
from bench.table import Contender, Metric, Row, Values
from lab.cluster import Cluster
from penstock.model.addresses import parse_address
from penstock.net.cluster_client import ClusterClient
from penstock.rolling.driver import Roll
from penstock.rolling.observing import RolledCluster
from penstock.rolling.progress import Progress

PATIENCE_S = 120.0
ANSWER_S = 10.0
#: before and after the roll, so that the fastest acknowledgement is not one of the roll
CALM_S = 3.0
ROUNDS = 3
PRODUCER = CLIENT | {"linger.ms": "0", "message.timeout.ms": "60000"}


def late_ms(acknowledged: Sequence[float], rate: int) -> list[float]:
    """Milliseconds by which each acknowledgement is late, in order."""
    since = [at - number / rate for number, at in enumerate(acknowledged)]
    fastest = min(since)
    return [(at - fastest) * 1e3 for at in since]


def _rolled(contender: Contender, scale: float) -> Values:
    with running(contender) as cluster, ExitStack() as stack:
        leaders = [[(first + at) % BROKERS + 1 for at in range(BROKERS)] for first in range(BROKERS)]
        names = [stack.enter_context(topic(cluster.bootstrap, on=replicas)) for replicas in leaders]
        wait_for_all_replicas(cluster)
        producers = [stack.enter_context(steady(cluster.bootstrap, name, PRODUCER)) for name in names]
        for producer in producers:
            producer.wait_until_flowing(time.monotonic() + CALM_S, PATIENCE_S)
        began = time.monotonic()
        asyncio.run(_roll(cluster))
        ended = time.monotonic()
        for producer in producers:
            producer.wait_until_flowing(ended + CALM_S, PATIENCE_S)
        late = []
        for name, producer in zip(names, producers, strict=True):
            check_written(cluster, name, producer.stop(PATIENCE_S))
            found = late_ms(producer.acknowledged, RATE)
            late += [ms for ms, at in zip(found, producer.acknowledged, strict=True) if began <= at <= ended]
    return {"p99": p99(late), "worst": max(late), "the roll": ended - began}


async def _roll(cluster: Cluster) -> None:
    async def restart(broker: int) -> None:
        server = cluster.brokers[broker - 1]
        await asyncio.to_thread(server.stop)
        server.launch()

    client = ClusterClient([parse_address(each) for each in cluster.bootstrap.split(",")], "bench")
    try:
        await Roll(
            RolledCluster(client, ANSWER_S),
            restart,
            timeout_s=PATIENCE_S,
            say=lambda line: None,
            save=lambda progress: None,
            awaits_process=True,
        ).run(Progress("bench"))
    finally:
        client.close()
        await asyncio.sleep(0)  # its transports end with the next turn of the loop


ROWS = (
    Row(
        "roll",
        f"three brokers are restarted one after the other under {BROKERS} producers of {RATE} messages/s, "
        "acks=all, idempotent: how late acknowledgements are, until the last broker is in sync",
        (
            Metric("p99", "ms", False, times_kafka=1.0),
            Metric("worst", "ms", False, times_kafka=1.0),
            Metric("the roll", "s", False),
        ),
        _rolled,
        heavy=True,
        rounds=ROUNDS,
        brokers=BROKERS,
    ),
)
