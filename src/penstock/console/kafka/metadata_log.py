"""Reads the metadata log from the active controller. Its records are decoded in a worker thread.

DescribeQuorum names the controllers' own listener. A Fetch with a negative replica id reads the log there
without being counted as an observer. It needs ClusterAction on the cluster.

Invariant: a listener that refuses or does not respond is tried again after `_PAUSE_S` only. Why: controllers
count failed logins by address, and other nodes may have the same address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, check, gap_of_error
from penstock.console.kafka.workers import in_worker
from penstock.console.views.knowledge import REFUSED
from penstock.console.views.metadata_log import MetadataLog
from penstock.model.errors import CorruptMessage, PenstockError, RecordListTooLarge
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.ports import FileRange
from penstock.wire.apis import fetch_snapshot
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from penstock.wire.routing import Address
from penstock.wire.schema import Records

__all__ = ["MetadataReader", "NoControllerListener"]

T = TypeVar("T")
_NO_REPLICA: Final = -1
_FETCH_BYTES: Final = 256 << 10
#: of one refresh: a page shows the rest after the next ones
_BYTES_MAX: Final = 16 << 20
_SNAPSHOT_BYTES_MAX: Final = 64 << 20
_PAUSE_S: Final = 60.0


class NoControllerListener(PenstockError):
    """The metadata log cannot be read; the message says why."""


class MetadataReader:
    """The metadata log as one user may read it. Owned by the thread of the event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._log = MetadataLog()
        self._reading = asyncio.Lock()
        self._refused: PenstockError | None = None
        self._not_before = 0.0

    async def refresh(self, view: Callable[[MetadataLog], T]) -> T:
        """A view of the log up to now; NoControllerListener if there is none, Refused if the user may not.

        `view` runs in a worker thread, while no other request changes the log.
        """
        async with self._reading:
            if self._refused is not None and time.monotonic() < self._not_before:
                raise self._refused
            try:
                await self._read()
            except (Refused, NotReachable, CorruptMessage, RecordListTooLarge) as error:
                is_refused = isinstance(error, Refused) and gap_of_error(error).state == REFUSED
                self._refused = error if is_refused else NoControllerListener(str(error))
                self._not_before = time.monotonic() + _PAUSE_S
                raise self._refused from error
            self._refused = None
            return await in_worker(partial(view, self._log))

    async def _read(self) -> None:
        controller, epoch = await self._controller()
        left = _BYTES_MAX
        while left > 0:
            found = await self._fetch(controller, epoch)
            if found.snapshot_id is not None and found.snapshot_id.end_offset >= 0:
                await self._load_snapshot(controller, epoch, found.snapshot_id)
                continue
            if found.diverging_epoch is not None and found.diverging_epoch.end_offset >= 0:
                # The records that were read were never committed here: another cluster has the address.
                self._log = MetadataLog()
                left -= _FETCH_BYTES
                continue
            position = self._log.position
            records, end = _copied(found.records), found.high_watermark
            left -= await in_worker(partial(self._log.add, records, end))
            if self._log.position == position:
                return

    async def _controller(self) -> tuple[Address, int]:
        """The address and the epoch of the active controller."""
        wanted = DescribeQuorumRequestTopic(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartition(partition_index=0)]
        )
        response = await self._cluster.send(DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[wanted]))
        check(response.error_code, response.error_message, "the quorum")
        (found,) = response.topics[0].partitions
        check(found.error_code, found.error_message, "the quorum")
        if not self._cluster.nodes:
            await self._cluster.metadata([])
        clients = set(self._cluster.nodes.values())
        for node in response.nodes:
            addresses = [(e.host, e.port) for e in node.listeners if (e.host, e.port) not in clients]
            if node.node_id == found.leader_id and addresses:
                return addresses[0], found.leader_epoch
        raise Refused("NO_CONTROLLER_LISTENER", "the brokers name no listener of the active controller")

    async def _fetch(self, controller: Address, epoch: int) -> PartitionData:
        log = self._log
        partition = FetchPartition(
            current_leader_epoch=epoch,
            fetch_offset=log.position,
            last_fetched_epoch=log.last_epoch,
            partition_max_bytes=_FETCH_BYTES,
        )
        topic = FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        request = FetchRequest(
            replica_id=_NO_REPLICA,
            replica_state=ReplicaState(replica_id=_NO_REPLICA),
            max_bytes=_FETCH_BYTES,
            topics=[topic],
        )
        response = await self._cluster.send_at(controller, FETCH, request)
        check(response.error_code, None, "the metadata log")
        found = response.responses[0].partitions[0]
        check(found.error_code, None, "the metadata log")
        return found

    async def _load_snapshot(self, controller: Address, epoch: int, wanted: Any) -> None:
        data = bytearray()
        while True:
            partition = fetch_snapshot.FetchSnapshotPartition(
                current_leader_epoch=epoch,
                snapshot_id=fetch_snapshot.SnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch),
                position=len(data),
            )
            topic = fetch_snapshot.FetchSnapshotTopic(name=METADATA_TOPIC, partitions=[partition])
            request = fetch_snapshot.FetchSnapshotRequest(
                replica_id=_NO_REPLICA, max_bytes=1 << 20, topics=[topic]
            )
            response = await self._cluster.send_at(controller, fetch_snapshot.FETCH_SNAPSHOT, request)
            check(response.error_code, None, "the snapshot of the metadata")
            found = response.topics[0].partitions[0]
            check(found.error_code, None, "the snapshot of the metadata")
            chunk = _copied(found.unaligned_records)
            data += chunk
            if len(data) >= found.size or not chunk:
                break
            if found.size > _SNAPSHOT_BYTES_MAX:
                raise Refused("SNAPSHOT_TOO_LARGE", f"the snapshot of the metadata has {found.size} bytes")
        self._log = MetadataLog()
        await in_worker(partial(self._log.load_snapshot, data, wanted.end_offset, wanted.epoch))


def _copied(records: Records | None) -> bytes:
    assert not isinstance(records, FileRange), "a decoded response has no files"
    return bytes(records or b"")
