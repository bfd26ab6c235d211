"""GetReplicaLogInfo."""

from __future__ import annotations

from dataclasses import replace

from penstock.broker.replica.partition import Partition
from penstock.model.config.mirrored_topics import Cut, MirroredTopic, MirrorState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.storage.recovery_report import Corruption
from penstock.wire.apis.get_replica_log_info import (
    GET_REPLICA_LOG_INFO,
    GetReplicaLogInfoRequest,
    LogInfoTopic,
)
from tests.broker.nodes import cluster, run
from tests.broker.replication import TOPIC as NAME
from tests.broker.replication import described, make_topic, produce


def test_a_broker_reports_the_logs_of_its_replicas() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            assert (await produce(nodes, 1, b"one", b"two")).error_code == ErrorCode.NONE
            topic_id = nodes[1].stages.cluster.image.topics[NAME].id
            unknown = TopicId(bytes(15) + b"\x09")

            async def call(node: int, *topics: LogInfoTopic) -> list[tuple[int, int, int, int, int]]:
                request = GetReplicaLogInfoRequest(topic_partitions=list(topics))
                response = await nodes.call(node, GET_REPLICA_LOG_INFO, request, internal=True)
                assert response.broker_epoch == nodes[node].stages.cluster.node.broker_epoch
                assert response.truncated is (sum(len(t.partitions) for t in topics) > 1000)
                return [
                    (
                        info.partition,
                        info.error_code,
                        info.last_written_leader_epoch,
                        info.current_leader_epoch,
                        info.log_end_offset,
                    )
                    for topic in response.topic_partition_log_info_list
                    for info in topic.partition_log_info
                ]

            wanted = LogInfoTopic(topic_id=topic_id, partitions=[0, 1])
            epoch = described(nodes[1]).leader_epoch
            missing = (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, 0)
            assert await call(1, wanted) == [(0, 0, epoch, epoch, 2), missing]
            assert await call(3, wanted) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0, 0), missing]
            absent = LogInfoTopic(topic_id=unknown, partitions=[0])
            assert await call(1, absent) == [(0, ErrorCode.UNKNOWN_TOPIC_ID, 0, 0, 0)]
            assert len(await call(1, LogInfoTopic(topic_id=topic_id, partitions=list(range(1001))))) == 1000

    run(main())


def test_a_broker_reports_the_end_of_the_sound_part_of_its_log() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            assert (await produce(nodes, 1, b"one", b"two", b"three")).error_code == ErrorCode.NONE
            topic_id = nodes[1].stages.cluster.image.topics[NAME].id
            found = nodes[1].stages.storage.partitions.find(topic_id, 0)
            assert isinstance(found, Partition)

            async def damage() -> tuple[bool, int, int]:
                wanted = LogInfoTopic(topic_id=topic_id, partitions=[0])
                request = GetReplicaLogInfoRequest(topic_partitions=[wanted])
                response = await nodes.call(1, GET_REPLICA_LOG_INFO, request, internal=True)
                (info,) = response.topic_partition_log_info_list[0].partition_log_info
                return info.is_damaged, info.damaged_to, info.sound_end_offset

            assert await damage() == (False, -1, -1)
            found.log.log_start_offset = 1
            assert await damage() == (True, 1, -1), "nothing explains the log start"
            found.log.recovery.found(Corruption(found.log.path, 0, 10, 0, 1))
            assert await damage() == (True, 1, -1), "sound records are behind the damage"
            found.log.recovery.found(Corruption(found.log.path, 20, 0, 2, 3))
            assert await damage() == (True, 3, 2)
            found.log.recovery.found(Corruption(found.log.path, 10, 10, 1, 2))
            assert await damage() == (True, 3, 0)

    run(main())


def test_a_log_that_is_to_be_cut_is_not_current() -> None:
    """A topic has returned to a link: what is behind the cut must not win an election."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            assert (await produce(nodes, 1, b"one", b"two", b"three")).error_code == ErrorCode.NONE
            image = nodes[1].stages.cluster.image
            topic_id, epoch = image.topics[NAME].id, described(nodes[1]).leader_epoch
            found = nodes[1].stages.storage.partitions.find(topic_id, 0)
            assert isinstance(found, Partition)
            topic = MirroredTopic("west", MirrorState.MIRRORING, topic_id, "t", cuts=(Cut(1, epoch),))
            found.log.config = replace(found.log.config, penstock_link=str(topic))
            found.leader_epoch = epoch + 1

            async def reported() -> int:
                wanted = LogInfoTopic(topic_id=topic_id, partitions=[0])
                request = GetReplicaLogInfoRequest(topic_partitions=[wanted])
                response = await nodes.call(1, GET_REPLICA_LOG_INFO, request, internal=True)
                (info,) = response.topic_partition_log_info_list[0].partition_log_info
                return int(info.current_leader_epoch)

            assert await reported() == -1
            found.log.config = replace(found.log.config, penstock_link="")
            assert await reported() == epoch + 1

    run(main())
