"""Where the leader's log of a partition starts and ends, as ListOffsets answers it to a follower."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.client import Peer
from penstock.replication.epochs import EpochEnd
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

__all__ = ["LogBounds", "archived_bounds", "leader_epoch_end", "log_bounds"]

_EARLIEST: Final = -2
_LATEST: Final = -1
_EARLIEST_LOCAL: Final = -4


class LogBounds(NamedTuple):
    """The first offset of a log, and the offset after its last record."""

    start: int
    end: int


async def log_bounds(
    peer: Peer, node_id: int, partition: Partition, leader_epoch: int, timeout_s: float
) -> LogBounds:
    """The bounds of the leader's log. Raises ApiError, or the error of the connection."""
    start = await _list_offset(peer, node_id, partition, leader_epoch, _EARLIEST, timeout_s)
    end = await _list_offset(peer, node_id, partition, leader_epoch, _LATEST, timeout_s)
    return LogBounds(start, end)


async def archived_bounds(
    peer: Peer, node_id: int, partition: Partition, leader_epoch: int, timeout_s: float
) -> LogBounds:
    """The log start of the leader, and the start of its local segments, to where only the archive has it."""
    start = await _list_offset(peer, node_id, partition, leader_epoch, _EARLIEST, timeout_s)
    end = await _list_offset(peer, node_id, partition, leader_epoch, _EARLIEST_LOCAL, timeout_s)
    return LogBounds(start, end)


async def leader_epoch_end(
    peer: Peer, node_id: int, partition: Partition, leader_epoch: int, epoch: int, timeout_s: float
) -> EpochEnd:
    """Where `epoch` ends in the leader's log. Raises ApiError, or the error of the connection."""
    wanted = OffsetForLeaderPartition(
        partition=partition.index, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=node_id, topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])]
    )
    ((answer,),) = [
        t.partitions for t in (await peer.send(OFFSET_FOR_LEADER_EPOCH, request, timeout_s)).topics
    ]
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code))
    return EpochEnd(answer.leader_epoch, answer.end_offset)


async def _list_offset(
    peer: Peer, node_id: int, partition: Partition, leader_epoch: int, timestamp: int, timeout_s: float
) -> int:
    wanted = ListOffsetsPartition(
        partition_index=partition.index, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=node_id,
        topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
    )
    ((answer,),) = [t.partitions for t in (await peer.send(LIST_OFFSETS, request, timeout_s)).topics]
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code))
    return answer.offset
