"""The faults: how each begins and ends, which alerts it fires, and which reason the health reports name."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from alarms.broker import AHEAD, BROKEN, CROWDED, FULL, LOW, SKEWED, SLOW, STALLED
from alarms.cluster import JOBS, LONG_DAYS, ORDERS, SHORT_DAYS, SINGLE, Cluster
from alarms.fault import Fault
from alarms.neighbour_faults import NEIGHBOUR_FAULTS
from lab.server import HOST
from penstock.client import Queue
from penstock.model.addresses import parse_bootstrap
from penstock.reading.connection import Cluster as Connections
from penstock.reading.connection import Endpoint
from penstock.twophase.prepared import PreparedTransactions

__all__ = ["FAULTS_IN_ORDER"]

_GROUP: Final = "billing"
_WORKERS: Final = "workers"
_FUSSY: Final = "fussy"
_LIMIT: Final = "max.connections.per.ip"
_TIMEOUT_S: Final = 30.0


def _on_disks(fault: str, *numbers: int) -> tuple[Callable[[Cluster], None], Callable[[Cluster], None]]:
    def begin(cluster: Cluster) -> None:
        for number in numbers:
            cluster.mark(number, fault)

    def end(cluster: Cluster) -> None:
        for number in numbers:
            cluster.unmark(number, fault)

    return begin, end


def _restart_second(cluster: Cluster) -> None:
    """A failed data directory comes back with the next start."""
    cluster.unmark(2, BROKEN)
    cluster.servers[1].stop()
    cluster.servers[1].launch()
    cluster.wait_ready()


def _kill(*numbers: int) -> Callable[[Cluster], None]:
    def begin(cluster: Cluster) -> None:
        for number in numbers:
            cluster.servers[number - 1].kill()

    return begin


def _start(*numbers: int) -> Callable[[Cluster], None]:
    def end(cluster: Cluster) -> None:
        for number in numbers:
            cluster.servers[number - 1].launch()
        cluster.wait_ready()

    return end


def _resume(cluster: Cluster) -> None:
    cluster.servers[2].resume()
    cluster.wait_ready()


class _TooManyConnections:
    """Lowers the limit of connections per address, and keeps connecting."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, cluster: Cluster) -> None:
        _set_limit(cluster, "20")
        self._over.clear()
        self._thread = threading.Thread(target=self._connect, args=(cluster.servers[0].port,), daemon=True)
        self._thread.start()

    def _connect(self, port: int) -> None:
        kept: list[socket.socket] = []
        while not self._over.wait(0.05):
            with suppress(OSError):
                kept.append(socket.create_connection((HOST, port), 2))
        for connection in kept:
            connection.close()

    def end(self, cluster: Cluster) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        _set_limit(cluster, "2147483647")


class _WrongPassword:
    """A client that keeps logging in with a wrong password."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, cluster: Cluster) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=self._log_in, args=(cluster.login_address,), daemon=True)
        self._thread.start()

    def _log_in(self, address: str) -> None:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "wrong"}
        pauses = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}
        client = AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "log_level": 0,
                **login,
                **pauses,
            }
        )
        while not self._over.is_set():
            with suppress(KafkaException):
                client.list_topics(timeout=1)

    def end(self, cluster: Cluster) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()


def _set_limit(cluster: Cluster, value: str) -> None:
    entry = ConfigEntry(_LIMIT, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    # Through another broker: the first one may refuse this connection.
    admin = AdminClient({"bootstrap.servers": cluster.servers[1].bootstrap, "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_TIMEOUT_S)


def _commit(cluster: Cluster, at_end: bool) -> None:
    """Commit the offsets of a group, at the beginning of the topic or at its end."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": _GROUP, "log_level": 0})
    offsets = []
    for partition in range(6):
        found = TopicPartition(ORDERS, partition)
        low, high = consumer.get_watermark_offsets(found, _TIMEOUT_S)
        offsets.append(TopicPartition(ORDERS, partition, high if at_end else low))
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _queue(cluster: Cluster, group: str) -> Queue:
    return Queue(cluster.bootstrap, JOBS, group=group, acknowledgement="explicit")


def _stand_still(cluster: Cluster) -> None:
    """Have a share group receive one message, give it back, and leave."""

    async def receive() -> None:
        async with _queue(cluster, _WORKERS) as queue:
            (await anext(queue)).release()

    asyncio.run(asyncio.wait_for(receive(), _TIMEOUT_S))


def _delete_group(cluster: Cluster, group: str = _WORKERS) -> None:
    command = [sys.executable, "-m", "penstock", "share", "delete", group, "--bootstrap"]
    subprocess.run([*command, cluster.bootstrap], check=True, capture_output=True, timeout=_TIMEOUT_S)


class _Rejecting:
    """A share group that rejects messages. It has no dead-letter topic that it may use, so letters fail."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, cluster: Cluster) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(cluster)), daemon=True)
        self._thread.start()

    async def _run(self, cluster: Cluster) -> None:
        letters = {"errors.deadletterqueue.topic.name": "dlq.missing"}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        async with Queue(
            cluster.bootstrap, JOBS, group=_FUSSY, acknowledgement="explicit", group_config=letters
        ) as queue:
            while not self._over.is_set():
                producer.produce(JOBS, b"x")
                producer.flush(1)
                with suppress(TimeoutError):
                    (await asyncio.wait_for(anext(queue), 1)).reject()

    def end(self, cluster: Cluster) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        # It leaves messages behind, and would fire the alert of share groups.
        _delete_group(cluster, _FUSSY)


def _leave_transaction(cluster: Cluster) -> None:
    """Write to a partition of broker 3 in a transaction, and kill the broker: no marker can be written."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "left",
            "transaction.timeout.ms": 3000,
            "log_level": 0,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(SINGLE, b"x")
    producer.flush(_TIMEOUT_S)
    cluster.servers[2].kill()


def _leave_two_phase_transaction(cluster: Cluster) -> None:
    """Write in a transaction, and prepare it: it has no timeout, and its external coordinator is gone."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "orphan",
            "transaction.timeout.ms": 5000,
            "log_level": 0,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(SINGLE, b"x")
    producer.flush(_TIMEOUT_S)
    with _two_phase(cluster) as transactions:
        assert transactions.prepare("orphan") is not None


def _end_two_phase_transaction(cluster: Cluster) -> None:
    with _two_phase(cluster) as transactions:
        transactions.abort("orphan")


@contextmanager
def _two_phase(cluster: Cluster) -> Iterator[PreparedTransactions]:
    connections = Connections(Endpoint(tuple(parse_bootstrap(cluster.bootstrap))))
    try:
        yield PreparedTransactions(connections)
    finally:
        connections.close()


def _refuse_spans(is_refusing: bool) -> Callable[[Cluster], None]:
    def change(cluster: Cluster) -> None:
        cluster.receiver.is_refusing = is_refusing

    return change


_REJECTING: Final = _Rejecting()
_CONNECTIONS: Final = _TooManyConnections()
_PASSWORDS: Final = _WrongPassword()
#: those that leave all brokers running come first: a group's lag in seconds starts over with its coordinator
FAULTS_IN_ORDER: Final = (
    Fault(
        "consumer that stands still",
        ("PenstockConsumerLag",),
        lambda cluster: _commit(cluster, at_end=False),
        lambda cluster: _commit(cluster, at_end=True),
        begins_early=True,
    ),
    Fault(
        "share group that stands still",
        ("PenstockShareGroupLag",),
        _stand_still,
        _delete_group,
        begins_early=True,
    ),
    Fault("rejected messages", ("PenstockDeadLetters",), _REJECTING.begin, _REJECTING.end),
    Fault("slow disks", ("PenstockHighLatency", "PenstockSyncLatency"), *_on_disks(SLOW, 1, 2, 3)),
    Fault("stalled event loop", ("PenstockLoopLag",), *_on_disks(STALLED, 1)),
    Fault("few file descriptors", ("PenstockFileDescriptors",), *_on_disks(CROWDED, 2)),
    Fault(
        "receiver of spans that refuses",
        ("PenstockTelemetryDropped",),
        _refuse_spans(True),
        _refuse_spans(False),
    ),
    Fault("clock of one broker ahead", ("PenstockClockSkew",), *_on_disks(SKEWED, 3)),
    Fault("disk nearly full", ("PenstockDiskSpaceLow",), *_on_disks(LOW, 1), "free, less than"),
    Fault(
        "refused connections",
        ("PenstockConnectionErrors",),
        _CONNECTIONS.begin,
        _CONNECTIONS.end,
        "refused in the last minute",
    ),
    Fault(
        "wrong password",
        ("PenstockConnectionErrors",),
        _PASSWORDS.begin,
        _PASSWORDS.end,
        "of the connections of the last minute have failed",
    ),
    Fault(
        "certificate that expires",
        ("PenstockCertificateExpires",),
        lambda cluster: cluster.issue_certificate(SHORT_DAYS),
        lambda cluster: cluster.issue_certificate(LONG_DAYS),
    ),
    Fault(
        "damaged segment", ("PenstockCorruption",), lambda cluster: cluster.damage(2), lambda cluster: None
    ),
    Fault(
        "clocks ahead", ("PenstockClockSuspect",), *_on_disks(AHEAD, 1, 2, 3), "nothing is deleted by time"
    ),
    Fault(
        "producer that stops",
        ("PenstockLowThroughput",),
        lambda cluster: cluster.writer.stop(),
        lambda cluster: cluster.writer.start(),
    ),
    Fault(
        "two-phase transaction without an outcome",
        ("PenstockTwoPhaseTransactionLate",),
        _leave_two_phase_transaction,
        _end_two_phase_transaction,
    ),
    *NEIGHBOUR_FAULTS,
    Fault("full disk", ("PenstockDiskFull",), *_on_disks(FULL, 2), "is full", is_calm=False),
    Fault(
        "follower that hangs",
        ("PenstockReplicaLag", "PenstockIsrShrink", "PenstockUnderReplicated", "PenstockBrokerFenced"),
        lambda cluster: cluster.servers[2].pause(),
        _resume,
        "broker 3 is fenced",
        is_calm=False,
    ),
    Fault(
        "dead broker",
        ("PenstockBrokerDown", "PenstockUnderMinIsr", "PenstockPartitionsOffline"),
        _kill(3),
        _start(3),
        "no leader",
        is_calm=False,
    ),
    Fault(
        "transaction that cannot end",
        ("PenstockTransactionsOverdue",),
        _leave_transaction,
        _start(3),
        is_calm=False,
    ),
    Fault(
        "broken disk",
        ("PenstockDirectoryOffline",),
        lambda cluster: cluster.mark(2, BROKEN),
        _restart_second,
        "is offline",
        is_calm=False,
    ),
    Fault(
        "lost majority",
        ("PenstockNoController",),
        _kill(2, 3),
        _start(2, 3),
        "there is no active controller",
        is_calm=False,
    ),
)
