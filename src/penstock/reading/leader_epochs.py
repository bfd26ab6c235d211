"""Where leader epochs end, as OffsetForLeaderEpoch answers it (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.net.peer_errors import PeerGone
from penstock.reading.connection import Attempts, Cluster
from penstock.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["EpochEnd", "end_offsets"]

_CONSUMER = -1


class EpochEnd(NamedTuple):
    """The largest leader epoch at or below a given one, and where it ends; both -1 if there is none."""

    leader_epoch: int
    end_offset: int


def end_offsets(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
    """By partition the end of its leader epoch. A partition that moves meanwhile is asked for again."""
    found: dict[TopicPartition, EpochEnd] = {}
    attempts = Attempts(cluster.endpoint.total_timeout_s)
    while left := [partition for partition in epochs if partition not in found]:
        try:
            for partition in left:
                found[partition] = _end_offset(cluster, partition, epochs[partition])
        except (PeerGone, ApiError) as e:
            if isinstance(e, ApiError) and reaction_to(e.code) is Reaction.FAIL:
                raise
            attempts.failed(e)
            cluster.refresh({partition.topic for partition in left})
    return found


def _end_offset(cluster: Cluster, partition: TopicPartition, epoch: int) -> EpochEnd:
    wanted = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER, topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])]
    )
    response = cluster.call(cluster.leader(*partition), OFFSET_FOR_LEADER_EPOCH, request)
    (answer,) = response.topics[0].partitions
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        raise ApiError(code, f"leader epochs of {partition}: {code.name}")
    return EpochEnd(answer.leader_epoch, answer.end_offset)
