"""Requests the log end offsets of replicas from their brokers (GetReplicaLogInfo), for unclean recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.broker.node.peers import Peers
from penstock.metadata.image import ClusterImage, PartitionImage, PartitionKey
from penstock.metadata.unclean_recovery import ReplicaReport, is_current
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.ids import TopicId
from penstock.wire.apis.get_replica_log_info import (
    GET_REPLICA_LOG_INFO,
    GetReplicaLogInfoRequest,
    LogInfoTopic,
    PartitionLogInfo,
)

__all__ = ["Answers", "ReplicaReports"]

#: how long a broker's response may take
_TIMEOUT_S: Final = 1.0
#: the most partitions that a broker reports in one response
_MOST_PARTITIONS: Final = 1000
#: pauses before retries, for brokers that have not yet applied that the partition has no leader
_RETRIES_S: Final = (0.02, 0.1, 0.3)
_NO_OFFSET: Final = -1

#: the reports of one broker on its replicas
Answers = dict[PartitionKey, ReplicaReport | ErrorCode]


class ReplicaReports:
    """Requests to the brokers that host the replicas of partitions without a leader."""

    def __init__(self, image: ClusterImage, peers: Peers) -> None:
        self._image = image
        self._peers = peers

    async def request(
        self,
        broker: int,
        partitions: Sequence[PartitionImage],
        batches_at: Mapping[PartitionKey, int] | None = None,
    ) -> Answers:
        """One broker's reports, by several requests if necessary; REQUEST_TIMED_OUT without a response.

        `batches_at` has the offset of the batch whose checksum a report should have, by partition.
        """
        answers: Answers = {}
        for first in range(0, len(partitions), _MOST_PARTITIONS):
            part = partitions[first : first + _MOST_PARTITIONS]
            try:
                answers |= await self._send(broker, part, batches_at or {})
            except PenstockError:
                answers |= {partition.key: ErrorCode.REQUEST_TIMED_OUT for partition in part}
        return answers

    async def collect(
        self, partitions: Sequence[PartitionImage]
    ) -> dict[PartitionKey, dict[int, ReplicaReport | ErrorCode]]:
        """The reports of all replicas on live brokers that respond within about a second."""
        found: dict[PartitionKey, dict[int, ReplicaReport | ErrorCode]] = {p.key: {} for p in partitions}
        for pause_s in (0.0, *_RETRIES_S):
            await asyncio.sleep(pause_s)
            wanted = self._unreported(partitions, found)
            reports = await asyncio.gather(*(self.request(node, part) for node, part in wanted.items()))
            for node, answers in zip(wanted, reports, strict=True):
                for key, answer in answers.items():
                    found[key][node] = answer
            if not self._unreported(partitions, found):
                break
        return found

    def _unreported(
        self,
        partitions: Iterable[PartitionImage],
        found: dict[PartitionKey, dict[int, ReplicaReport | ErrorCode]],
    ) -> dict[int, list[PartitionImage]]:
        """The partitions, by live broker, for which a current report is still missing."""
        wanted: dict[int, list[PartitionImage]] = {}
        for partition in partitions:
            for node in partition.replicas:
                broker, report = self._image.brokers.get(node), found[partition.key].get(node)
                if broker is None or not broker.active or isinstance(report, ErrorCode):
                    continue
                if report is None or not is_current(self._image, partition, report):
                    wanted.setdefault(node, []).append(partition)
        return wanted

    async def _send(
        self, broker: int, partitions: Sequence[PartitionImage], batches_at: Mapping[PartitionKey, int]
    ) -> Answers:
        topics: dict[TopicId, LogInfoTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic_id, LogInfoTopic(topic_id=partition.topic_id))
            topic.partitions.append(partition.index)
            if batches_at:
                topic.batches_at.append(batches_at.get(partition.key, _NO_OFFSET))
        request = GetReplicaLogInfoRequest(topic_partitions=list(topics.values()))
        peer = self._peers.get(broker, "recovery")
        response = await peer.send(GET_REPLICA_LOG_INFO, request, _TIMEOUT_S)
        return {
            (TopicId(topic.topic_id), info.partition): _report(broker, response.broker_epoch, info)
            for topic in response.topic_partition_log_info_list
            for info in topic.partition_log_info
        }


def _report(broker: int, broker_epoch: int, info: PartitionLogInfo) -> ReplicaReport | ErrorCode:
    if info.error_code != ErrorCode.NONE:
        return ErrorCode(info.error_code)
    return ReplicaReport(
        broker=broker,
        broker_epoch=broker_epoch,
        leader_epoch=info.current_leader_epoch,
        last_epoch=info.last_written_leader_epoch,
        end_offset=info.log_end_offset,
        start_offset=info.log_start_offset,
        high_watermark=info.high_watermark,
        damaged=info.is_damaged,
        damaged_to=None if info.damaged_to < 0 else info.damaged_to,
        sound_end=None if info.sound_end_offset < 0 else info.sound_end_offset,
        batch_checksum=None if info.batch_checksum < 0 else info.batch_checksum,
        epochs=tuple(zip(info.leader_epochs[::2], info.leader_epochs[1::2], strict=False)),
    )
