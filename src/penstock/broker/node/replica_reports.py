"""Asks brokers how far the logs of their replicas go (GetReplicaLogInfo), for unclean recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
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

#: how long a broker has for its answer
_TIMEOUT_S: Final = 1.0
#: as many as a broker answers for
_MOST_PARTITIONS: Final = 1000
#: when replicas are asked again that had not heard yet that their partition has no leader
_RETRIES_S: Final = (0.02, 0.1, 0.3)

#: what a broker says of its replicas
Answers = dict[PartitionKey, ReplicaReport | ErrorCode]


class ReplicaReports:
    """Requests to the brokers that host the replicas of partitions without a leader."""

    def __init__(self, image: ClusterImage, peers: Peers) -> None:
        self._image = image
        self._peers = peers

    async def request(self, broker: int, partitions: Sequence[PartitionImage]) -> Answers:
        """One broker's reports, in as many requests as it takes; REQUEST_TIMED_OUT where none comes."""
        answers: Answers = {}
        for first in range(0, len(partitions), _MOST_PARTITIONS):
            part = partitions[first : first + _MOST_PARTITIONS]
            try:
                answers |= await self._send(broker, part)
            except PenstockError:
                answers |= {partition.key: ErrorCode.REQUEST_TIMED_OUT for partition in part}
        return answers

    async def collect(
        self, partitions: Sequence[PartitionImage]
    ) -> dict[PartitionKey, dict[int, ReplicaReport | ErrorCode]]:
        """The reports of all replicas whose brokers are up, as far as they answer within about a second."""
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
        """The partitions of which a broker that is up may still give a report that counts."""
        wanted: dict[int, list[PartitionImage]] = {}
        for partition in partitions:
            for node in partition.replicas:
                broker, report = self._image.brokers.get(node), found[partition.key].get(node)
                if broker is None or not broker.active or isinstance(report, ErrorCode):
                    continue
                if report is None or not is_current(self._image, partition, report):
                    wanted.setdefault(node, []).append(partition)
        return wanted

    async def _send(self, broker: int, partitions: Sequence[PartitionImage]) -> Answers:
        topics: dict[TopicId, LogInfoTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic_id, LogInfoTopic(topic_id=partition.topic_id))
            topic.partitions.append(partition.index)
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
    )
