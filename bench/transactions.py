"""Transactions: throughput, the duration of commits, a copy, readers of committed records, failover."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from bench.cluster import BROKERS, CLIENT, PATIENCE_S, running, wait_for_all_replicas
from bench.load import Flow, commits, consume, produce, topic, transactions
from bench.process import cpu_seconds, thread_seconds
from bench.requests import p99
from bench.steady import longest_gap
from bench.table import Contender, Metric, Row, Values
from bench.throughput import CONSUMER, PER_MILLION, PRODUCER
from lab.cluster import REPLICAS, Cluster
from lab.raw_client import RawClient
from lab.server import Server
from penstock.coordination.partitioning import partition_of
from penstock.model.errors import ErrorCode
from penstock.records.record import Record, build_batch
from penstock.wire.apis.end_txn import END_TXN, EndTxnRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData

MESSAGES = 400_000
COMMITS = 600
COPIED = 60_000
COPY_BATCH = 500
READ = 400_000
#: of the row with aborts, one in ten transactions
ABORTED = 10
KILLS = {"penstock": 6, "kafka": 2}
WATCH_S = 4.0
IDEMPOTENT = PRODUCER | {"enable.idempotence": "true", "batch.num.messages": "1000"}
PLAIN = "messages/s, idempotent without transactions"
OF_PLAIN = "of plain"
CPU_PER_GB = "CPU per GB"
_TRANSACTION = 1
_RETRY_S = 0.0005
_RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def _producing(contender: Contender, scale: float) -> Values:
    """Transactions of 100 ms, and the same messages without transactions beside them."""
    server, count = contender.server, int(MESSAGES * scale)

    def measured(send: Callable[[str], Flow]) -> tuple[Flow, float]:
        with topic(server.bootstrap) as name:
            before = cpu_seconds(server.pid)
            flow = send(name)
            return flow, cpu_seconds(server.pid) - before

    plain, _ = measured(lambda name: produce(server.bootstrap, name, count, 1024, IDEMPOTENT))
    flow, spent = measured(lambda name: transactions(server.bootstrap, name, count, IDEMPOTENT))
    return {
        "messages/s": flow.messages_per_second,
        PLAIN: plain.messages_per_second,
        OF_PLAIN: flow.messages_per_second / plain.messages_per_second,
        PER_MILLION: spent / flow.messages * 1e6,
    }


def _committed(brokers: Server | Cluster, scale: float, replicas: int) -> Values:
    with topic(brokers.bootstrap, partitions=1, replicas=replicas) as name:
        commits(brokers.bootstrap, name, max(20, int(COMMITS * scale) // 5), CLIENT | {"linger.ms": "0"})
        found = commits(brokers.bootstrap, name, max(20, int(COMMITS * scale)), CLIENT | {"linger.ms": "0"})
    return {"p50": found.p50, "p99": found.p99}


def _committing(contender: Contender, scale: float) -> Values:
    return _committed(contender.server, scale, 1)


def _committing_replicated(contender: Contender, scale: float) -> list[Values]:
    with running(contender) as cluster:
        return [_committed(cluster, scale, REPLICAS) for _ in range(3)]


def _requesting(contender: Contender, scale: float) -> Values:
    """Produce and EndTxn, as a client of KIP-890 sends them, until both are answered without an error."""
    server = contender.server
    waits: list[float] = []
    with topic(server.bootstrap, partitions=1) as name, RawClient(server.bootstrap) as client:
        wanted = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[name])
        _until_done(lambda: client.call(FIND_COORDINATOR, 4, wanted).coordinators[0].error_code)
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        identity = client.call(INIT_PRODUCER_ID, 5, init)
        while identity.error_code:
            time.sleep(_RETRY_S)
            identity = client.call(INIT_PRODUCER_ID, 5, init)
        key = identity.producer_id, identity.producer_epoch
        for _ in range(max(40, int(2 * COMMITS * scale))):
            before = time.perf_counter()
            key = _transact(client, name, *key)
            waits.append((time.perf_counter() - before) * 1e3)
    # The first half warms up.
    measured = waits[len(waits) // 2 :]
    return {"p50": statistics.median(measured), "p99": p99(measured)}


def _transact(client: RawClient, name: str, producer_id: int, epoch: int) -> tuple[int, int]:
    """Commit a transaction of one message; returns the producer id and epoch of the next one."""
    batch = build_batch(
        [Record(0, int(time.time() * 1000), None, b"x" * 100)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    data = TopicProduceData(
        name=name, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))]
    )
    produce = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[data])
    end = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
    _until_done(lambda: client.call(PRODUCE, 12, produce).responses[0].partition_responses[0].error_code)
    answer = client.call(END_TXN, 5, end)
    if answer.error_code:
        raise RuntimeError(f"EndTxn answered error {answer.error_code}")
    return answer.producer_id, answer.producer_epoch


def _until_done(attempt: Callable[[], int]) -> None:
    """Repeat a request while the topic is new, or the coordinator is loading or ending a transaction."""
    deadline = time.monotonic() + PATIENCE_S
    while error := attempt():
        if error not in _RETRIED or time.monotonic() > deadline:
            raise RuntimeError(f"a request of a transaction was answered with error {error}")
        time.sleep(_RETRY_S)


def _copying(contender: Contender, scale: float) -> Values:
    server, count = contender.server, int(COPIED * scale)
    with topic(server.bootstrap, partitions=1) as source, topic(server.bootstrap, partitions=1) as target:
        produce(server.bootstrap, source, count, 100, PRODUCER)
        before, began = cpu_seconds(server.pid), time.monotonic()
        _copy(server.bootstrap, source, target, count)
        seconds, spent = time.monotonic() - began, cpu_seconds(server.pid) - before
    return {"messages/s": count / seconds, PER_MILLION: spent / count * 1e6}


def _copy(bootstrap: str, source: str, target: str, count: int) -> None:
    """Read, write and commit the offsets in transactions of `COPY_BATCH` messages."""
    name = f"copy-{uuid.uuid4().hex[:8]}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(PATIENCE_S)
    copied = 0
    try:
        while copied < count:
            messages = consumer.consume(min(COPY_BATCH, count - copied), PATIENCE_S)
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value())
            positions = consumer.position(consumer.assignment())
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, metadata, PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
            copied += len(messages)
    finally:
        consumer.close()


def _reading(contender: Contender, scale: float) -> Values:
    """The broker's cost of reading the same amount: plain, committed, and with aborted transactions."""
    server = contender.server
    # The load generator takes messages by ten thousand.
    count = max(1, round(READ * scale / 10_000)) * 10_000
    uncommitted = CONSUMER | {"isolation.level": "read_uncommitted"}
    committed = CONSUMER | {"isolation.level": "read_committed"}

    def cost(name: str, settings: dict[str, str]) -> float:
        before = thread_seconds(server.pid)
        flow = consume(server.bootstrap, name, count, settings)
        return (thread_seconds(server.pid) - before) / (flow.bytes / 1e9)

    with topic(server.bootstrap) as plain, topic(server.bootstrap) as aborted:
        transactions(server.bootstrap, plain, count, IDEMPOTENT)
        transactions(server.bootstrap, aborted, count, IDEMPOTENT, ABORTED)
        # In turns: the best of each.
        costs = [(cost(plain, uncommitted), cost(plain, committed), cost(aborted, committed)) for _ in "123"]
    base, of_committed, of_aborted = (min(each) for each in zip(*costs, strict=True))
    return {
        CPU_PER_GB: of_committed,
        "committed, of plain": of_committed / base,
        "with a tenth aborted, of plain": of_aborted / base,
    }


class _Committing:
    """Commits transactions of one message for ever, and notes when each is committed."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.committed: list[float] = []
        self._settings: dict[str, Any] = {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            "log_level": 0,
        }
        self._topic = name
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        producer = Producer(self._settings)
        producer.init_transactions(PATIENCE_S)
        while not self._stopped.is_set():
            producer.begin_transaction()
            producer.produce(self._topic, b"x", partition=0)
            try:
                producer.commit_transaction(PATIENCE_S)
            except KafkaException as e:
                if not e.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(PATIENCE_S)
                continue
            self.committed.append(time.monotonic())


def _failing_over(contender: Contender, scale: float) -> Values:
    """The coordinator is killed; the partition that is written to has another leader."""
    waits = []
    with running(contender) as cluster:
        for _ in range(max(1, int(KILLS[contender.server.name] * scale))):
            waits.append(_outage(cluster))
    return {"median": statistics.median(waits), "worst": max(waits)}


def _outage(cluster: Cluster) -> float:
    wait_for_all_replicas(cluster)
    with topic(cluster.bootstrap, partitions=1, replicas=REPLICAS) as name:
        writer = _Committing(cluster.bootstrap, name)
        writer.start()
        try:
            _wait(lambda: len(writer.committed) > 20)
            coordinator = _coordinator(cluster, name)
            at = time.monotonic()
            coordinator.kill()
            try:
                _wait(lambda: writer.committed[-1] > at + WATCH_S)
                return longest_gap(writer.committed, at, writer.committed[-1])
            finally:
                coordinator.launch()
                # Before the topic is deleted: clients forget brokers that are not in the cluster.
                wait_for_all_replicas(cluster)
        finally:
            writer.stop()


def _coordinator(cluster: Cluster, name: str) -> Server:
    """The broker that coordinates a transactional id."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    partitions = admin.list_topics("__transaction_state", timeout=PATIENCE_S).topics["__transaction_state"]
    leader: int = partitions.partitions[partition_of(name, len(partitions.partitions))].leader
    return cluster.brokers[leader - 1]


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("no transaction was committed in time")
        time.sleep(0.02)


ROWS = (
    Row(
        "transactions-1k",
        "produce 1-KB messages in transactions of 100 ms, 4 partitions",
        (
            Metric("messages/s", "", True, times_kafka=1.3),
            Metric(OF_PLAIN, "", True, limit=0.95),
            Metric(PLAIN, "", True),
            Metric(PER_MILLION, "s", False),
        ),
        _producing,
    ),
    Row(
        "transactions-commit",
        "transactions of one message, one after the other: their duration",
        (
            Metric("p50", "ms", False, times_kafka=0.7),
            Metric("p99", "ms", False, times_kafka=0.7),
        ),
        _committing,
        where="in the client library: librdkafka sends AddPartitionsToTxn a millisecond after the message, "
        "by a timer, and hands a transaction over between its threads a dozen times. `transactions-requests` "
        "has the brokers' part alone.",
    ),
    Row(
        "transactions-requests",
        "transactions of one message by a client without a library: the duration of Produce and EndTxn",
        (
            Metric("p50", "ms", False, times_kafka=0.7),
            Metric("p99", "ms", False, times_kafka=0.7),
        ),
        _requesting,
    ),
    Row(
        "transactions-commit-cluster",
        "three brokers, replication factor 3: the duration of transactions of one message",
        (
            Metric("p50", "ms", False, times_kafka=0.7),
            Metric("p99", "ms", False, times_kafka=0.7),
        ),
        _committing_replicated,
        heavy=True,
        brokers=BROKERS,
    ),
    Row(
        "transactions-copy",
        f"read, write and commit offsets in transactions of {COPY_BATCH} messages of 100 bytes",
        (Metric("messages/s", "", True, times_kafka=1.2), Metric(PER_MILLION, "s", False)),
        _copying,
    ),
    Row(
        "transactions-consume",
        "consume 1-KB messages of transactions, read_committed",
        (
            Metric(CPU_PER_GB, "s", False),
            Metric("committed, of plain", "", False, limit=1.03),
            Metric("with a tenth aborted, of plain", "", False, limit=1.1),
        ),
        _reading,
    ),
    Row(
        "transactions-failover",
        "three brokers: `kill -9` of the transaction coordinator to the next committed transaction "
        f"({KILLS['penstock']} times, Kafka {KILLS['kafka']})",
        (Metric("median", "s", False, limit=1.0), Metric("worst", "s", False)),
        _failing_over,
        heavy=True,
        brokers=BROKERS,
    ),
)
