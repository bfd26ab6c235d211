"""Takes over the committed offsets of groups from the source, for groups that this broker coordinates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.links.source_cluster import SourceCluster, SourceError
from penstock.groups.shard import GroupShard
from penstock.linking.committed import Committed, GroupMirror
from penstock.linking.definition import LinkDefinition
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.net.deferred import Deferred
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

__all__ = ["GroupMirroring", "HighWatermarks"]

log = get_logger("links")
#: the high watermarks of partitions of this cluster; those that are not known are left out
HighWatermarks = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]


class GroupMirroring:
    """The groups of one link that this broker coordinates."""

    def __init__(
        self, groups: CoordinatorRuntime[GroupShard], image: ClusterImage, high_watermarks: HighWatermarks
    ) -> None:
        self._groups = groups
        self._image = image
        self._high_watermarks = high_watermarks
        self._mirrors: dict[str, GroupMirror] = {}
        #: groups whose offsets another client has committed here
        self.foreign: set[str] = set()

    async def compare(
        self,
        definition: LinkDefinition,
        source: SourceCluster,
        mirrored: Mapping[str, str],
        promoted: Container[str],
    ) -> bool:
        """Commit what the source has committed. `mirrored` has the local names of mirrored topics.

        `promoted` are the local names of those whose promotion waits for their offsets.

        Returns false if offsets of a topic that is promoted are in transactions at the source that have not
        ended. Those of other topics are in some transaction most of the time, and are compared later.
        """
        if self._groups.topic.partition_for("") < 0:
            return True
        is_complete = True
        coordinated = set(self._groups.indexes())
        for group in await source.groups():
            if not definition.groups.match(group):
                continue
            if self._groups.topic.partition_for(group) not in coordinated:
                self._mirrors.pop(group, None)
                continue
            try:
                found, unstable = await source.committed(group)
            except SourceError as e:
                log.info("link_group_unknown", link=definition.name, group=group, error=str(e))
                continue
            is_complete = is_complete and not any(
                key.topic in mirrored and mirrored[key.topic] in promoted for key in unstable
            )
            offsets = {
                TopicPartition(mirrored[key.topic], key.partition): committed
                for key, committed in found.items()
                if key.topic in mirrored
            }
            if offsets:
                await self._commit(definition.name, group, offsets)
        return is_complete

    async def _commit(self, link: str, group: str, source: Mapping[TopicPartition, Committed]) -> None:
        mirror = self._mirrors.setdefault(group, GroupMirror())
        here = await self._fetched(group, source)
        due = mirror.due(source, here, await self._high_watermarks(source))
        due = {key: each for key, each in due.items() if key.topic in self._image.topics}
        if mirror.foreign(here):
            self.foreign.add(group)
        else:
            self.foreign.discard(group)
        if not due:
            return
        error = await self._submit(group, due)
        if error is ErrorCode.NONE:
            mirror.committed(due)
        elif error not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR):
            # A group with members commits for itself.
            log.info("link_group_refused", link=link, group=group, error=error.name)

    async def _fetched(self, group: str, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        topics: dict[str, list[int]] = {}
        for key in wanted:
            topics.setdefault(key.topic, []).append(key.partition)
        request = OffsetFetchRequestGroup(
            group_id=group,
            topics=[
                OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()
            ],
        )
        answer = self._groups.submit(
            group,
            lambda shard, _: shard.fetch(request),
            lambda error: OffsetFetchResponseGroup(group_id=group, error_code=error.code),
        )
        found = await awaited(answer) if isinstance(answer, Deferred) else answer
        assert isinstance(found, OffsetFetchResponseGroup)
        if found.error_code:
            raise ApiError(ErrorCode(found.error_code), f"the offsets of group {group} cannot be read")
        return {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    async def _submit(self, group: str, due: Mapping[TopicPartition, Committed]) -> ErrorCode:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for key, committed in due.items():
            topic = topics.get(key.topic)
            if topic is None:
                topic_id = self._image.topics[key.topic].id
                topic = topics[key.topic] = OffsetCommitRequestTopic(name=key.topic, topic_id=topic_id)
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=key.partition,
                    committed_offset=committed.offset,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))
        failed: list[ApiError] = []

        def refuse(error: ApiError) -> OffsetCommitResponse:
            failed.append(error)
            return OffsetCommitResponse()

        answer = self._groups.submit(group, lambda shard, _: shard.commit(request, 9), refuse)
        found = await awaited(answer) if isinstance(answer, Deferred) else answer
        assert isinstance(found, OffsetCommitResponse)
        if failed:
            return failed[0].code
        codes = [each.error_code for topic in found.topics for each in topic.partitions if each.error_code]
        return ErrorCode(codes[0]) if codes else ErrorCode.NONE
