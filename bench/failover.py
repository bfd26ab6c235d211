"""From the loss of a partition's leader to the next acknowledged write, on three brokers.

A producer sends to one partition with three replicas at a steady rate. The result is its longest wait for an
acknowledgement after the fault, until the cluster has recovered and all session timeouts have passed. Then
the broker restarts, and the next fault waits until all replicas are in sync. An acknowledged record that is
missing or duplicated fails the row.

Every third broker that is lost is also the controller, as in production. Apache Kafka needs ten seconds per
fault, so it gets fewer faults.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from bench.cluster import BROKERS, CLIENT, controller, running, wait_for_all_replicas
from bench.load import topic
from bench.steady import longest_gap, steady
from bench.table import Contender, Metric, Row, Values
from chaos.links import Links
from lab.cluster import Cluster

KILLS = {"penstock": 20, "kafka": 3}
HANGS = {"penstock": 3, "kafka": 1}
WATCH_S = 4.0
"""Longer than a broker's session timeout (3 s), so that the other brokers have detected the fault."""
PATIENCE_S = 90.0
PRODUCER = CLIENT | {
    "linger.ms": "0",
    "topic.metadata.refresh.fast.interval.ms": "20",
    "message.timeout.ms": "60000",
}
IMPATIENT = PRODUCER | {"socket.timeout.ms": "1000"}
"""A client gets no error from a broker that hangs: by default it waits a minute before it tries others."""
CLIENTS = -1
"""The id of connections that are not from a broker."""


def _killed(contender: Contender, scale: float) -> Values:
    with running(contender) as cluster:
        waits = []
        for number in range(max(2, int(KILLS[contender.server.name] * scale))):
            leader = _next_victim(cluster, number)
            broker = cluster.brokers[leader - 1]
            waits.append(_outage(cluster, leader, PRODUCER, broker.kill, broker.launch))
    return {"median": statistics.median(waits), "worst": max(waits)}


def _hung(contender: Contender, scale: float) -> Values:
    """Stopped by a signal, or behind proxies that let nothing pass: silence, while connections stay."""
    stopped, cut_off = [], []
    with ExitStack() as stack:
        links = Links()
        links.start()
        stack.callback(links.close)
        cluster = stack.enter_context(running(contender, links.add))
        for number in range(max(1, int(HANGS[contender.server.name] * scale))):
            leader = _next_victim(cluster, number)
            broker = cluster.brokers[leader - 1]
            stopped.append(_outage(cluster, leader, IMPATIENT, broker.pause, broker.resume))
            # Look it up again: the controller may have moved away from the stopped broker.
            leader = _next_victim(cluster, number)
            cut = partial(links.cut, _all_ways(leader))
            cut_off.append(_outage(cluster, leader, IMPATIENT, cut, links.heal))
    return {"stopped, worst": max(stopped), "cut off, worst": max(cut_off)}


def _next_victim(cluster: Cluster, number: int) -> int:
    """A broker that is the controller one time in three."""
    wait_for_all_replicas(cluster)
    return (controller(cluster) - 1 + number) % BROKERS + 1


def _all_ways(node: int) -> list[tuple[int, int]]:
    others = [other for other in (CLIENTS, *range(1, BROKERS + 1)) if other != node]
    return [way for other in others for way in ((node, other), (other, node))]


def _outage(
    cluster: Cluster,
    leader: int,
    settings: Mapping[str, str],
    fault: Callable[[], None],
    mend: Callable[[], None],
) -> float:
    """Seconds that a producer waited because of `fault`, which `mend` undoes."""
    replicas = [leader, *(node for node in range(1, BROKERS + 1) if node != leader)]
    with (
        topic(cluster.bootstrap, on=replicas) as name,
        steady(cluster.bootstrap, name, settings) as producer,
    ):
        producer.wait_until_flowing(time.monotonic(), PATIENCE_S)
        at = time.monotonic()
        fault()
        try:
            producer.wait_until_flowing(at + WATCH_S, PATIENCE_S)
            waited = longest_gap(producer.acknowledged, at, producer.acknowledged[-1])
        finally:
            mend()
        sent = producer.stop(PATIENCE_S)
        wait_for_all_replicas(cluster)
        check_written(cluster, name, sent)
    return waited


def check_written(cluster: Cluster, name: str, sent: int) -> None:
    """RuntimeError if the topic's one partition has not as many messages as were acknowledged."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "bench", "log_level": 0})
    try:
        _, end = reader.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE_S)
    finally:
        reader.close()
    if end != sent:
        raise RuntimeError(f"{cluster.name} acknowledged {sent} messages and has {end}")


ROWS = (
    Row(
        "failover",
        f"three brokers: `kill -9` of a partition's leader to the next acknowledged write "
        f"({KILLS['penstock']} times, Kafka {KILLS['kafka']}; each third is the controller, too)",
        (Metric("median", "s", False, limit=0.5), Metric("worst", "s", False, limit=1.5)),
        _killed,
        heavy=True,
        brokers=BROKERS,
    ),
    Row(
        "failover-silent",
        "three brokers: a partition's leader is stopped (SIGSTOP) or cut off (proxies let nothing pass), to "
        f"the next acknowledged write ({HANGS['penstock']} times each, Kafka {HANGS['kafka']}; each third is "
        "the controller, too)",
        (Metric("stopped, worst", "s", False, limit=4), Metric("cut off, worst", "s", False, limit=4)),
        _hung,
        heavy=True,
        brokers=BROKERS,
        where=(
            "a session of 3 s, counted from the leader's last heartbeat, or its last answer as the "
            "controller; the client has given up on it by then, and sends its requests to the others until "
            "one of them leads."
        ),
    ),
)
