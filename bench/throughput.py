"""As fast as the client can: by size of message, by codec, and with all on the disk before the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.load import Flow, consume, produce, topic
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values, fresh
from lab.cluster import Cluster
from lab.server import Server

#: the number of messages for each codec: gzip keeps a client busy ten times longer than other codecs
CODECS = {"gzip": 60_000, "snappy": 300_000, "lz4": 300_000, "zstd": 300_000}
PRODUCER = {
    "acks": "all",
    "linger.ms": "5",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
    "message.max.bytes": "2000000",
}
CONSUMER = {"fetch.message.max.bytes": "10485760", "queued.min.messages": "1000000"}
#: the configs of each broker that sync every message before its acknowledgement
SYNCED = {"penstock": {"penstock.flush": "group"}, "kafka": {"log.flush.interval.messages": "1"}}
TOPIC = {"max.message.bytes": "2000000"}

PER_MILLION = "CPU per million"
CLIENT_CORES = Metric("client cores", "", False)
BROKER_CORES = Metric("broker cores", "", False)
OF_ONE = Metric("messages/s of one client", "", True)


def _used(flow: Flow, broker_cpu: float) -> Values:
    """The share of busy time: if the broker has time left, the client or the machine was the limit."""
    return {
        CLIENT_CORES.name: flow.client_cpu / flow.seconds,
        BROKER_CORES.name: broker_cpu / flow.seconds,
    }


def produced(
    brokers: Server | Cluster,
    count: int,
    size: int,
    settings: Mapping[str, str],
    replicas: int = 1,
    clients: int = 1,
) -> Values:
    with topic(brokers.bootstrap, configs=TOPIC, replicas=replicas) as name:
        before = cpu_seconds(*brokers.pids)
        flow = produce(brokers.bootstrap, name, count, size, settings, clients)
        spent = cpu_seconds(*brokers.pids) - before
    cost = {PER_MILLION: spent / flow.messages * 1e6, "CPU per GB": spent / (flow.bytes / 1e9)}
    return {"messages/s": flow.messages_per_second, **cost, **_used(flow, spent)}


def _producing(size: int, messages: int, batch: int, **settings: str) -> Callable[[Contender, float], Values]:
    wanted = PRODUCER | {"batch.num.messages": str(batch), **settings}

    def measure(contender: Contender, scale: float) -> Values:
        return produced(contender.server, int(messages * scale), size, wanted)

    return measure


def _producing_small(contender: Contender, scale: float) -> Values:
    """With two clients: the threads of one client are slower than the broker."""
    wanted = PRODUCER | {"batch.num.messages": "10000"}

    def by(clients: int) -> Values:
        return produced(contender.server, int(3_000_000 * scale), 100, wanted, clients=clients)

    return {**by(2), OF_ONE.name: by(1)["messages/s"]}


def _producing_synced(contender: Contender, scale: float) -> Values:
    with fresh(contender, SYNCED[contender.server.name]) as server:
        return produced(server, int(300_000 * scale), 1024, PRODUCER | {"batch.num.messages": "1000"})


def _consuming(contender: Contender, scale: float) -> Values:
    server, count = contender.server, int(1_000_000 * scale)
    with topic(server.bootstrap) as name:
        produce(server.bootstrap, name, count, 1024, PRODUCER | {"batch.num.messages": "1000"})
        before = cpu_seconds(server.pid)
        flow = consume(server.bootstrap, name, count, CONSUMER)
        spent = cpu_seconds(server.pid) - before
    rate = {"messages/s": flow.messages_per_second, "CPU per GB": spent / (flow.bytes / 1e9)}
    return {**rate, **_used(flow, spent)}


def metrics(rate_times_kafka: float | None, cost: str, cost_times_kafka: float | None) -> tuple[Metric, ...]:
    return (
        Metric("messages/s", "", True, times_kafka=rate_times_kafka),
        Metric(cost, "s", False, times_kafka=cost_times_kafka),
        CLIENT_CORES,
        BROKER_CORES,
    )


def _codec_row(codec: str) -> Row:
    settings = {"compression.codec": codec}
    measure = _producing(1024, CODECS[codec], 1000, **settings)
    what = f"produce 1-KB messages of text, compressed by the client: {codec}"
    return Row(f"produce-{codec}", what, metrics(None, PER_MILLION, None), measure, rounds=2)


MOSTLY_KERNEL = (
    "mostly in the kernel, which writes to the page cache, receives and syncs; then in the interpreter, "
    "because the bytes of a batch have pushed everything else out of the caches, and in checksums. Broker "
    "and client together fill both cores (the table of limits), so what the broker saves shows in the rate "
    "only in part."
)
MOSTLY_CLIENT = (
    "in the clients, which fill the machine (the table of limits has the cores of both): even a broker "
    "without any cost would add little to the rate."
)
ROWS = (
    Row(
        "produce-1k",
        "produce 1-KB messages, 4 partitions, acks=all",
        metrics(1.5, PER_MILLION, 0.5),
        _producing(1024, 1_000_000, batch=1000),
        where=MOSTLY_KERNEL,
    ),
    Row(
        "produce-100",
        "produce 100-byte messages, 4 partitions, acks=all, two clients at once",
        (*metrics(1.1, PER_MILLION, 0.6), OF_ONE),
        _producing_small,
        where=MOSTLY_CLIENT,
    ),
    Row(
        "consume-1k",
        "consume 1-KB messages from the beginning",
        metrics(None, "CPU per GB", 1.1),
        _consuming,
        where="in the kernel: `sendfile` takes the bytes from the page cache to the socket.",
    ),
    Row(
        "produce-10k",
        "produce 10-KB messages, 4 partitions, acks=all",
        metrics(None, "CPU per GB", None),
        _producing(10 << 10, 100_000, batch=100),
        rounds=2,
    ),
    Row(
        "produce-1m",
        "produce 1-MB messages, 4 partitions, acks=all",
        metrics(None, "CPU per GB", None),
        _producing(1 << 20, 1000, batch=1),
        rounds=2,
    ),
    *map(_codec_row, CODECS),
    Row(
        "produce-synced",
        "produce 1-KB messages, on the disk before the answer (`penstock.flush=group`; Kafka: every append)",
        metrics(None, PER_MILLION, None),
        _producing_synced,
        rounds=2,
    ),
)
