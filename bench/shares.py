"""Share groups: messages per second, CPU, the round trip of an acceptance, and many members.

The members are raw sockets in this process: no library has all versions of ShareFetch. They read the offsets
of what they acquired, and no records, so the broker is the limit as far as possible. All brokers run with
`group.share.max.size` 1000, and locks for 10,000 records in flight.
"""

from __future__ import annotations

import select
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from bench.lifecycle import allow_open_files
from bench.load import produce, topic
from bench.process import cpu_seconds
from bench.requests import p99
from bench.table import Contender, Metric, Row, Values, fresh
from bench.throughput import PER_MILLION, PRODUCER
from lab.raw_client import RawClient
from lab.server import Server
from penstock.wire.apis import incremental_alter_configs as configs
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.apis.share_acknowledge import AcknowledgementBatch
from penstock.wire.apis.share_fetch import SHARE_FETCH, FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest

_SETTINGS: Final = {
    "group.share.max.size": "1000",
    "group.share.max.share.sessions": "2000",
    "group.share.partition.max.record.locks": "10000",
    "group.share.max.partition.max.record.locks": "10000",
}
_MESSAGES: Final = 200_000
_RATE: Final = 1000
_SECONDS: Final = 5.0
_GROUP: Final = 32
_ACCEPT: Final = 1
_PATIENCE_S: Final = 60.0


class Member(RawClient):
    """A member of a share group, which accepts with each fetch what the last one brought."""

    def __init__(self, server: Server, group: str, topic_id: bytes, records: int) -> None:
        super().__init__(server.bootstrap)
        self.id = uuid.uuid4().hex
        self._group, self._topic_id, self._records = group, topic_id, records
        self._epoch = 0
        #: acquired and not accepted
        self.held: list[tuple[int, int]] = []

    def join(self, name: str) -> None:
        """Send heartbeats until the partition is assigned."""
        self.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group]))
        epoch, deadline = 0, time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            request = ShareGroupHeartbeatRequest(
                group_id=self._group, member_id=self.id, member_epoch=epoch, subscribed_topic_names=[name]
            )
            answer = self.call(SHARE_GROUP_HEARTBEAT, 1, request)
            if not answer.error_code:
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return
            time.sleep(0.05)
        raise TimeoutError(f"{self._group}: no partition was assigned")

    def fetch(self, wait_ms: int = 500) -> None:
        """Send ShareFetch, which accepts what the member has."""
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[_ACCEPT])
            for first, last in self.held
        ]
        self.held = []
        partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
        listed = [FetchTopic(topic_id=self._topic_id, partitions=[partition])]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self.id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=self._records,
            batch_size=self._records,
            topics=listed if batches or not self._epoch else [],
        )
        self._epoch += 1
        self.send(SHARE_FETCH, 1, request)

    def fetched(self) -> int:
        """Receive the answer; returns the number of records that were acquired."""
        answer = self.receive()
        if answer.error_code:
            raise RuntimeError(f"ShareFetch answered error {answer.error_code}")
        for listed in answer.responses:
            for data in listed.partitions:
                self.held += [(a.first_offset, a.last_offset) for a in data.acquired_records]
        return sum(last - first + 1 for first, last in self.held)


@contextmanager
def _members(server: Server, name: str, count: int, records: int) -> Iterator[list[Member]]:
    group = f"share-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        admin = Member(server, group, b"", 0)
        stack.callback(admin.close)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        topic_id = admin.call(METADATA, 12, wanted).topics[0].topic_id
        change = configs.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = configs.AlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=[change])
        admin.call(
            configs.INCREMENTAL_ALTER_CONFIGS, 1, configs.IncrementalAlterConfigsRequest(resources=[resource])
        )
        made = [Member(server, group, topic_id, records) for _ in range(count)]
        for member in made:
            stack.callback(member.close)
        # ShareFetch does not check the membership: one member is enough for the share partition to exist.
        made[0].join(name)
        yield made


def _drain(members: Sequence[Member], total: int) -> float:
    """Have all members fetch and accept until `total` records were acquired; returns the seconds."""
    by_socket = {member.socket: member for member in members}
    done, began = 0, time.perf_counter()
    for member in members:
        member.fetch()
    while done < total:
        ready, _, _ = select.select(by_socket, [], [], _PATIENCE_S)
        if not ready:
            raise TimeoutError(f"{done} of {total} records within {_PATIENCE_S:g} s")
        for each in ready:
            member = by_socket[each]
            done += member.fetched()
            member.fetch()
    return time.perf_counter() - began


def _consuming(members: int) -> Any:
    def measure(contender: Contender, scale: float) -> Values:
        count = int(_MESSAGES * scale)
        with fresh(contender, _SETTINGS) as server, topic(server.bootstrap, 1) as name:
            produce(server.bootstrap, name, count, 1024, PRODUCER | {"batch.num.messages": "500"})
            with _members(server, name, members, 500) as joined:
                before = cpu_seconds(server.pid)
                seconds = _drain(joined, count)
                spent = cpu_seconds(server.pid) - before
        return {"messages/s": count / seconds, PER_MILLION: spent / count * 1e6}

    return measure


def _accepting(contender: Contender, scale: float) -> Values:
    """One record at a time, at a fixed rate: from the acceptance to its answer, which has the next record."""
    total = int(_RATE * _SECONDS * scale)
    waits: list[float] = []
    with fresh(contender, _SETTINGS) as server, topic(server.bootstrap, 1) as name:
        # Small batches: one member acquires whole batches.
        produce(server.bootstrap, name, 2 * total, 100, {"batch.num.messages": "1", "linger.ms": "0"})
        with _members(server, name, 1, 1) as (member,):
            member.fetch()
            member.fetched()
            began = time.perf_counter()
            for sent in range(total):
                time.sleep(max(0.0, began + sent / _RATE - time.perf_counter()))
                before = time.perf_counter()
                member.fetch()
                member.fetched()
                waits.append((time.perf_counter() - before) * 1e3)
    return {"p50": statistics.median(waits), "p99": p99(waits)}


def _crowded(contender: Contender, scale: float) -> Values:
    """The CPU per message with 1,000 members on a partition, against 10, with 10,000 records in flight."""
    allow_open_files(4000)
    count = int(_MESSAGES * scale / 2)
    costs: list[float] = []
    with fresh(contender, _SETTINGS) as server:
        for members in (10, 1000):
            with topic(server.bootstrap, 1) as name:
                produce(server.bootstrap, name, count, 100, PRODUCER | {"batch.num.messages": "10"})
                with _members(server, name, members, 10) as joined:
                    before = cpu_seconds(server.pid)
                    _drain(joined, count)
                    costs.append((cpu_seconds(server.pid) - before) / count * 1e6)
    return {"CPU per million, 10 members": costs[0], "with 1,000 members": costs[1] / costs[0]}


def _throughput(members: int) -> Row:
    return Row(
        f"share-consume-{members}",
        f"share group with {members} members on one partition, 1-KB messages, 500 per acknowledgement",
        (
            Metric("messages/s", "", True, times_kafka=1.0),
            Metric(PER_MILLION, "s", False, times_kafka=0.7),
        ),
        _consuming(members),
        rounds=3,
    )


ROWS: tuple[Row, ...] = (
    _throughput(1),
    _throughput(8),
    Row(
        "share-accept",
        "share group: accept one message and receive the next, 1,000 a second",
        (Metric("p50", "ms", False, times_kafka=0.7), Metric("p99", "ms", False, times_kafka=0.7)),
        _accepting,
        rounds=3,
    ),
    Row(
        "share-members",
        "share group with 1,000 members on one partition, against 10: CPU per message",
        (
            Metric("CPU per million, 10 members", "s", False),
            Metric("with 1,000 members", "times", False, limit=1.25),
        ),
        _crowded,
        rounds=2,
        where="in the second attempts of fetches: 1,000 members with ten records each have as many records "
        "in flight as is allowed, so each fetch waits until an earlier record is accepted. The rest are the "
        "caches of the processor: the objects of 1,000 connections and sessions are cold.",
    ),
)
