"""A link between two clusters of one broker each, beside a follower, and beside MirrorMaker 2.

Source and destination run on the same machine. A link is paused while records are produced, so that what is
measured is the work of catching up: the time, and the processor time of the destination. A follower gets a
replica of the same records by a reassignment. For a line with a round trip of 80 ms, both runs go through the
same proxy (`lab/wan.py`), once without a delay.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.load import latency, produce
from bench.process import cpu_seconds, resident_bytes
from bench.table import Contender, Metric, Row, Values
from bench.throughput import PRODUCER
from lab.mirror_maker import mirror_maker
from lab.penstock import far_penstock
from lab.server import Server
from lab.wan import Wan
from penstock.cli.cluster.moves import Move, start_moves
from penstock.cli.direct import DirectLine
from penstock.model import ids
from penstock.net.link_client import alter_link, create_link
from penstock.net.link_ends import end_topics

MESSAGES, SIZE, PARTITIONS = 1_000_000, 1024, 4
#: enough for what both do at the start not to count
FOLLOWED_MESSAGES: Final = 2_000_000
#: enough for what a line adds at the start, connections and metadata, not to count
FAR_MESSAGES: Final = 3_000_000
RATE, SECONDS = 10_000, 10.0
ROUND_TRIP_S = 0.08
FAILED_OVER: Final = 100
PATIENCE_S = 180.0
POLL_S = 0.05
#: until a paused link has ended its requests
SETTLING_S = 0.5
#: times that each side is measured, in turn
TURNS = 3
SETTINGS: Final = {"linger.ms": "5", "batch.num.messages": "1000"}
_ALONE = "a link fetches the partitions of another cluster by itself; Kafka has MirrorMaker 2, in a row below"


class _Caught(NamedTuple):
    """How long the records took, and what they cost the destination.

    `flowing_s` is for all of them at the rate behind the first tenth: connections and metadata are left out.
    """

    seconds: float
    cpu: float
    flowing_s: float = 0.0


def _end(consumer: Consumer, topic: str, partitions: int) -> int:
    """The sum of the high watermarks; 0 while the topic is not there."""
    try:
        keys = [TopicPartition(topic, index) for index in range(partitions)]
        return sum(consumer.get_watermark_offsets(key, timeout=30)[1] for key in keys)
    except KafkaException:
        return 0


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} took more than {PATIENCE_S:g} s")
        time.sleep(POLL_S)


def _ends_at(bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    try:
        _wait(lambda: _end(consumer, topic, partitions) >= count, f"{count} records of {topic}")
    finally:
        consumer.close()


def _create(bootstrap: str, name: str, partitions: int = PARTITIONS, on: Sequence[int] = ()) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    placed = {"replica_assignment": [list(on)] * partitions} if on else {"replication_factor": 1}
    config = {"min.insync.replicas": "1"}
    admin.create_topics([NewTopic(name, partitions, config=config, **placed)])[name].result(30)


@contextmanager
def _two(
    contender: Contender, wan: Wan | None = None, *, has_link: bool = True
) -> Iterator[tuple[Server, Server]]:
    """A source, and a destination with a link that mirrors all topics, over a line if there is one."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, ExitStack() as stack:
        homes = [Path(folder) / name for name in ("source", "here")]
        for home in homes:
            home.mkdir()
        here = contender.starter(homes[1], {})
        if wan is None:
            source = contender.starter(homes[0], {})
            address = source.bootstrap
        else:
            source, address = far_penstock(homes[0], {}, wan)
        for server in (source, here):
            server.start()
            stack.callback(server.stop)
        if has_link:
            _link(here.bootstrap, {"bootstrap.servers": address, "topics": "*"}, is_new=True)
        yield source, here


def _link(here: str, values: Mapping[str, str | None], *, is_new: bool = False) -> None:
    with DirectLine(here, PATIENCE_S) as line:
        change = create_link if is_new else alter_link
        line.run(lambda cluster: change(cluster, "west", values))


def _caught_up(source: Server, here: Server, name: str, count: int) -> _Caught:
    """Have a link catch up with `count` records of a new topic."""
    _create(source.bootstrap, name)
    produce(source.bootstrap, name, PARTITIONS, SIZE, SETTINGS)
    _ends_at(here.bootstrap, name, PARTITIONS)
    _link(here.bootstrap, {"paused": "true"})
    time.sleep(SETTLING_S)
    produce(source.bootstrap, name, count, SIZE, PRODUCER | SETTINGS)
    before, began = cpu_seconds(here.pid), time.perf_counter()
    _link(here.bootstrap, {"paused": "false"})
    _ends_at(here.bootstrap, name, count // 10)
    flows = time.perf_counter()
    _ends_at(here.bootstrap, name, count + PARTITIONS)
    ended = time.perf_counter()
    found = _Caught(ended - began, cpu_seconds(here.pid) - before, (ended - flows) / 0.9)
    for each in (source, here):
        admin = AdminClient({"bootstrap.servers": each.bootstrap, "log_level": 0})
        admin.delete_topics([name])[name].result(30)
    return found


# -- beside a follower


def _followed(bootstrap: str, pid: int, name: str, count: int) -> _Caught:
    """Have broker 2 get a replica of what broker 1 has."""
    _create(bootstrap, name, on=(1,))
    produce(bootstrap, name, count, SIZE, PRODUCER | SETTINGS)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def in_sync() -> bool:
        topic = admin.list_topics(name, timeout=30).topics[name]
        return all(2 in each.isrs for each in topic.partitions.values())

    before, began = cpu_seconds(pid), time.perf_counter()
    with DirectLine(bootstrap, PATIENCE_S) as line:
        start_moves(line, [Move(ids.TopicPartition(name, index), [1, 2]) for index in range(PARTITIONS)])
    _wait(in_sync, "the follower")
    found = _Caught(time.perf_counter() - began, cpu_seconds(pid) - before)
    admin.delete_topics([name])[name].result(30)
    return found


def _beside_follower(contender: Contender, scale: float) -> Values:
    count = int(FOLLOWED_MESSAGES * scale)
    linked, followed = [], []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, _two(contender) as (source, here):
        cluster = contender.cluster(Path(folder), {"group.initial.rebalance.delay.ms": "0"}, 2)
        cluster.start()
        try:
            for turn in range(TURNS + 1):
                linked.append(_caught_up(source, here, f"linked-{turn}", count))
                follower = cluster.brokers[1]
                followed.append(_followed(cluster.bootstrap, follower.pid, f"followed-{turn}", count))
        finally:
            cluster.stop()
    # The first turn warms both up.
    link, follower_ = _median(linked[1:]), _median(followed[1:])
    return {
        "link, messages/s": count / link.seconds,
        "follower, messages/s": count / follower_.seconds,
        "throughput of a link, × follower": follower_.seconds / link.seconds,
        "link, CPU of the destination per million": link.cpu / count * 1e6,
        "follower, CPU of its broker per million": follower_.cpu / count * 1e6,
        "CPU of a link, × follower": link.cpu / follower_.cpu,
    }


def _median(found: Sequence[_Caught]) -> _Caught:
    return _Caught(*map(statistics.median, zip(*found, strict=True)))


# -- over a long line


def _far(contender: Contender, scale: float) -> Values:
    count = int(FAR_MESSAGES * scale)
    near: list[_Caught] = []
    far: list[_Caught] = []
    with Wan() as wan, _two(contender, wan) as (source, here):
        for turn in range(TURNS + 1):
            for found, delay_s in ((near, 0.0), (far, ROUND_TRIP_S / 2)):
                wan.delay_s = delay_s
                name = f"{'far' if delay_s else 'near'}-{turn}"
                found.append(_caught_up(source, here, name, count))
    direct, delayed = _median(near[1:]), _median(far[1:])
    return {
        "without delay, messages/s": count / direct.flowing_s,
        "with 80 ms, messages/s": count / delayed.flowing_s,
        "with 80 ms, × without": direct.flowing_s / delayed.flowing_s,
        "with 80 ms, seconds until all is here": delayed.seconds,
    }


# -- from the producer to the consumer of the other cluster


def _recovery_point(contender: Contender, scale: float) -> Values:
    seconds = SECONDS * scale
    with _two(contender) as (source, here):
        _create(source.bootstrap, "orders")
        admin = AdminClient({"bootstrap.servers": here.bootstrap, "log_level": 2})
        _wait(lambda: "orders" in admin.list_topics(timeout=30).topics, "the mirror of a topic")
        before = cpu_seconds(here.pid)
        both = f"{source.bootstrap}/{here.bootstrap}"
        settings = {"acks": "all", "linger.ms": "1"}
        seen = latency(both, "orders", int(seconds * RATE), RATE, settings)
        cores = (cpu_seconds(here.pid) - before) / seen.seconds
    return {
        "p50": seen.end_to_end.p50,
        "p99": seen.end_to_end.p99,
        "p99.9": seen.end_to_end.p99_9,
        "cores of the destination": cores,
    }


# -- beside MirrorMaker 2


def _beside_mirror_maker(contender: Contender, scale: float) -> Values:
    count = int(MESSAGES * scale)
    with _two(contender) as (source, here):
        found = [_caught_up(source, here, f"linked-{turn}", count) for turn in range(TURNS + 1)]
        memory = resident_bytes(here.pid)
    link = _median(found[1:])
    with (
        _two(contender, has_link=False) as (source, here),
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        mirror_maker(Path(folder), source.bootstrap, here.bootstrap) as process,
    ):
        made = [_mirror_made(source, here, process.pid, f"made-{turn}", count) for turn in range(TURNS + 1)]
        heap = resident_bytes(process.pid)
    seconds = statistics.median(each[0].seconds for each in made[1:])
    own = statistics.median(each[1] for each in made[1:])
    at_broker = statistics.median(each[0].cpu for each in made[1:])
    return {
        "link, messages/s": count / link.seconds,
        "MirrorMaker 2, messages/s": count / seconds,
        "link, CPU of the destination per million": link.cpu / count * 1e6,
        "MirrorMaker 2, its CPU per million": own / count * 1e6,
        "MirrorMaker 2, CPU of the destination per million": at_broker / count * 1e6,
        "CPU of the destination of a link, × MirrorMaker 2": link.cpu / own,
        "destination with a link, resident": memory / 1e6,
        "MirrorMaker 2, resident": heap / 1e6,
        "memory, × MirrorMaker 2": memory / heap,
    }


def _mirror_made(source: Server, here: Server, pid: int, name: str, count: int) -> tuple[_Caught, float]:
    """The work of the destination's broker, and the processor time of MirrorMaker 2.

    It runs while records are produced: it cannot be paused.
    """
    _create(source.bootstrap, name)
    produce(source.bootstrap, name, PARTITIONS, SIZE, SETTINGS)
    _ends_at(here.bootstrap, f"source.{name}", PARTITIONS)
    before, own, began = cpu_seconds(here.pid), cpu_seconds(pid), time.perf_counter()
    produce(source.bootstrap, name, count, SIZE, PRODUCER | SETTINGS)
    _ends_at(here.bootstrap, f"source.{name}", count + PARTITIONS)
    found = _Caught(time.perf_counter() - began, cpu_seconds(here.pid) - before)
    return found, cpu_seconds(pid) - own


# -- the source is gone


def _failed_over(contender: Contender, scale: float) -> Values:
    """Seconds from the command to the first acknowledged record of each partition."""
    with _two(contender) as (source, here):
        _create(source.bootstrap, "orders", FAILED_OVER)
        produce(source.bootstrap, "orders", 100_000, 100, SETTINGS)
        _ends_at(here.bootstrap, "orders", 100_000, FAILED_OVER)
        source.kill()
        began = time.perf_counter()
        with DirectLine(here.bootstrap, PATIENCE_S) as line:
            line.run(lambda port: end_topics(port, "west", None, complete=False, wait_s=PATIENCE_S))
        opened = time.perf_counter() - began
        writer = Producer({"bootstrap.servers": here.bootstrap, "linger.ms": "0"})
        for partition in range(FAILED_OVER):
            writer.produce("orders", b"new", partition=partition)
        if writer.flush(PATIENCE_S):
            raise RuntimeError("a partition takes no records")
        return {"all are open": opened, "each has a new record": time.perf_counter() - began}


def _row(
    name: str,
    what: str,
    metrics: tuple[Metric, ...],
    measure: Callable[[Contender, float], Values],
    where: str = "",
) -> Row:
    return Row(name, what, metrics, measure, heavy=True, brokers=2, alone=_ALONE, where=where)


ROWS = (
    _row(
        "link-recovery-point",
        "a link, 10,000 messages/s: from the producer at the source to a consumer here, linger 1 ms",
        (
            Metric("p50", "ms", False, limit=20),
            Metric("p99", "ms", False, limit=150),
            Metric("p99.9", "ms", False),
            Metric("cores of the destination", "", False),
        ),
        _recovery_point,
    ),
    _row(
        "link-throughput",
        "a link catches up with 2 GB of 1-KB messages in 4 partitions, and a new follower does",
        (
            Metric("link, messages/s", "", True),
            Metric("follower, messages/s", "", True),
            Metric("throughput of a link, × follower", "", True, limit=0.9),
            Metric("link, CPU of the destination per million", "s", False),
            Metric("follower, CPU of its broker per million", "s", False),
            Metric("CPU of a link, × follower", "", False, limit=1.2),
        ),
        _beside_follower,
        where=(
            "a follower sends its next request from the callback that has appended the last response; a link "
            "does so from a task, behind the comparison with its state. Source, destination and a cluster of "
            "two share two cores, of which other work took most when this was measured; the row beside "
            "MirrorMaker 2 is from a quieter minute."
        ),
    ),
    _row(
        "link-far",
        "a link catches up with 3 GB through a proxy, with a round trip of 80 ms and without",
        (
            Metric("without delay, messages/s", "", True),
            Metric("with 80 ms, messages/s", "", True),
            Metric("with 80 ms, × without", "", True, limit=0.9),
            Metric("with 80 ms, seconds until all is here", "", False),
        ),
        _far,
        where=(
            "each of four partitions has one request under way, and its next one waits until the records of "
            "the last are appended (ADR 150). The proxy takes a part of the two cores, too."
        ),
    ),
    _row(
        "link-mirror-maker",
        "1 GB of 1-KB messages by a link, and by MirrorMaker 2 of Apache Kafka 4.3.1",
        (
            Metric("link, messages/s", "", True),
            Metric("MirrorMaker 2, messages/s", "", True),
            Metric("link, CPU of the destination per million", "s", False),
            Metric("MirrorMaker 2, its CPU per million", "s", False),
            Metric("MirrorMaker 2, CPU of the destination per million", "s", False),
            Metric("CPU of the destination of a link, × MirrorMaker 2", "", False, limit=0.2),
            Metric("destination with a link, resident", "MB", False),
            Metric("MirrorMaker 2, resident", "MB", False),
            Metric("memory, × MirrorMaker 2", "", False, limit=0.1),
        ),
        _beside_mirror_maker,
    ),
    _row(
        "link-failover",
        "failover of 100 mirrored partitions, behind `kill -9` of the source",
        (
            Metric("all are open", "s", False, limit=2),
            Metric("each has a new record", "s", False, limit=2),
        ),
        _failed_over,
    ),
)
