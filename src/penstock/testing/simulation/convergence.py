"""Convergence: after all faults are healed, all replicas are in sync and have equal logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Final

from penstock.broker.app.broker import Broker
from penstock.model.errors import CorruptMessage, PenstockError
from penstock.model.ids import TopicPartition
from penstock.records.control import parse_end_transaction
from penstock.records.record import Record, iter_batches, iter_records
from penstock.storage.log import Log
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.observation import incarnation, partition_views

__all__ = ["compacted_difference", "unsettled"]

_READ_BYTES: Final = 1 << 20


def unsettled(nodes: Sequence[Node]) -> str | None:
    """The first reason why the cluster has not converged yet; None if it has.

    A converged cluster: every broker is up, and all have the same metadata. Every partition has a leader and
    all replicas in sync. Their logs are equal byte for byte, or record for record in compacted topics. No
    replica's log starts before the leader's.
    """
    brokers = {node.id: node.broker for node in nodes if node.broker is not None}
    if len(brokers) < len(nodes):
        return f"only {sorted(brokers)} are up"
    offsets = {node_id: broker.stages.cluster.image.offset for node_id, broker in brokers.items()}
    if len(set(offsets.values())) > 1:
        return f"images end at {offsets}"
    for partition in partition_views(next(iter(brokers.values())).stages.cluster.image):
        if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
            return f"{partition}"
        found = [_log_of(brokers[node_id], partition.partition) for node_id in partition.replicas]
        logs = [log for log in found if log is not None]
        if len(logs) < len(found):
            return f"{partition.partition}: not all of {partition.replicas} have it"
        ends = [(log.end_offset, log.high_watermark) for log in logs]
        if len(set(ends)) > 1:
            return f"{partition.partition}: replicas end at {ends}"
        starts = dict(zip(partition.replicas, [log.log_start_offset for log in logs], strict=True))
        if min(starts.values()) < starts[partition.leader]:
            return f"{partition.partition}: replicas start at {starts}, {partition.leader} leads"
        difference = _difference(logs)
        if difference is not None:
            return f"{partition.partition}: {difference}"
    return None


def _log_of(broker: Broker, name: TopicPartition) -> Log | None:
    for partition in broker.stages.storage.partitions:
        if incarnation(partition.topic, partition.topic_id, partition.index) == name:
            return partition.log
    return None


def _difference(logs: Sequence[Log]) -> str | None:
    """The first difference between the logs of in-sync replicas; None if they are equal."""
    # Replicas may start at different offsets: each deletes records when it learns the new log start.
    # Below their local starts, the archive has the records of all.
    start = max(log.local_log_start_offset for log in logs)
    try:
        contents = [_content(log, start) for log in logs]
        if len(set(contents)) <= 1:
            return None
        if not all(log.config.compact for log in logs):
            return "replicas have different bytes"
        aborted = set().union(*map(_aborted, contents))
        return compacted_difference([_records(content) for content in contents], aborted)
    except PenstockError as e:
        # Damage that no scrubber has mended yet.
        return f"a replica cannot be read: {e}"


def _content(log: Log, position: int) -> bytes:
    """All batches from that with the offset `position` on."""
    parts = []
    while position < log.end_offset:
        found = log.read(position, _READ_BYTES, upper=log.end_offset)
        if found is None:
            break
        data = found.read_unverified()
        parts.append(data)
        end = max((header.next_offset for _, header in iter_batches(data)), default=position)
        if end <= position:
            raise CorruptMessage(f"no batch that reaches behind offset {position} is there")
        position = end
    return b"".join(parts)


def _records(content: bytes) -> list[Record]:
    view = memoryview(content)
    return [
        record
        for position, header in iter_batches(view)
        if not header.is_control
        for record in iter_records(view[position : position + header.size])
    ]


def _aborted(content: bytes) -> set[int]:
    """The offsets of records of aborted transactions, as far as their markers are there."""
    view = memoryview(content)
    found: set[int] = set()
    undecided: dict[int, set[int]] = defaultdict(set)
    for position, header in iter_batches(view):
        batch = view[position : position + header.size]
        if not header.is_transactional:
            continue
        if not header.is_control:
            undecided[header.producer_id].update(record.offset for record in iter_records(batch))
            continue
        marker = parse_end_transaction(batch)
        if marker is not None and not marker.committed:
            found |= undecided[header.producer_id]
        undecided.pop(header.producer_id, None)
    return found


def compacted_difference(
    replicas: Sequence[Sequence[Record]], aborted: Collection[int] = frozenset()
) -> str | None:
    """The first inconsistency of compacted replicas; None if there is none.

    Replicas compact independently, so one may still have records that another has removed. But all have the
    same record at an offset, and a consumer of any replica ends with the same value for each key. Compaction
    removes the records at the offsets `aborted`, and consumers leave them out.
    """
    by_offset: dict[int, Record] = {}
    for record in chain.from_iterable(replicas):
        if by_offset.setdefault(record.offset, record) != record:
            return f"replicas have different records at offset {record.offset}"
    tables = [_table([each for each in records if each.offset not in aborted]) for records in replicas]
    if any(table != tables[0] for table in tables):
        return "replicas have different values"
    return None


def _table(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """The latest value of each key that has one."""
    latest = {record.key: record.value for record in records}
    return {key: value for key, value in latest.items() if value is not None}
