"""OffsetCommit, OffsetFetch, OffsetDelete: topic names and ids by version, and unknown topics."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.base.refused_offsets import (
    BY_TOPIC_ID,
    GROUP_ERROR_FROM,
    GROUPS_FROM,
    commit_refused,
    fetch_refused,
)
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.groups.shard import GroupShard
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.net.deferred import Deferred
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from penstock.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

__all__ = ["GroupOffsetHandlers"]

#: partitions of a response of an old version that are converted in one step
_CONVERTED_AT_ONCE: Final = 250


class GroupOffsetHandlers:
    """The APIs of committed offsets."""

    def __init__(self, groups: CoordinatorRuntime[GroupShard], image: ClusterImage) -> None:
        self._groups = groups
        self._image = image

    # -- OffsetCommit

    def offset_commit(self, context: Context, request: OffsetCommitRequest) -> Any:
        """Commit to the existing partitions. Unknown topics and partitions get errors here."""
        image = self._image
        by_id = context.version >= BY_TOPIC_ID
        refused: list[OffsetCommitResponseTopic] = []
        accepted: list[OffsetCommitRequestTopic] = []
        for topic in request.topics:
            known = image.topics_by_id.get(TopicId(topic.topic_id)) if by_id else image.topics.get(topic.name)
            if known is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refused.append(commit_refused(topic, code))
                continue
            topic.name, topic.topic_id = known.name, known.id
            missing = [p for p in topic.partitions if p.partition_index not in known.partitions]
            if missing:
                topic.partitions = [p for p in topic.partitions if p.partition_index in known.partitions]
                unknown = OffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=missing)
                refused.append(commit_refused(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if topic.partitions:
                accepted.append(topic)
        if not accepted:
            return OffsetCommitResponse(topics=refused)
        request.topics = accepted

        def operate(shard: GroupShard, _: object) -> OffsetCommitResponse:
            response: OffsetCommitResponse = shard.commit(request, context.version)
            if refused:
                response.topics = _merged(response.topics, refused)
            return response

        def error_response(error: ApiError) -> OffsetCommitResponse:
            return OffsetCommitResponse(
                topics=_merged([commit_refused(t, error.code) for t in accepted], refused)
            )

        return self._groups.submit(request.group_id, operate, error_response)

    # -- OffsetFetch

    def offset_fetch(self, context: Context, request: OffsetFetchRequest) -> Any:
        version = context.version
        if version >= GROUPS_FROM:
            wanted = request.groups
        else:
            topics = None
            if request.topics is not None:
                topics = [
                    OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
                    for t in request.topics
                ]
            wanted = [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
        if any(group.topics is None for group in wanted):
            return context.spawn(self._fetch_all(context, request.require_stable, wanted))
        return self._groups.submit_each(
            ((group.group_id, group) for group in wanted),
            partial(self._fetch_group, context, request.require_stable),
            lambda group, error: _fetch_error(version, group, error.code),
            lambda responses: _fetch_response(version, responses),
        )

    async def _fetch_all(
        self, context: Context, require_stable: bool, wanted: Sequence[OffsetFetchRequestGroup]
    ) -> OffsetFetchResponse:
        """The response to a request for all offsets of groups, made in slices."""
        version, image = context.version, self._image
        topics_of: dict[int, Iterator[OffsetFetchResponseTopics]] = {}

        def fetch(shard: GroupShard, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
            if group.topics is not None:
                return self._fetch_group(context, require_stable, shard, group)
            response = OffsetFetchResponseGroup(group_id=group.group_id)
            topics_of[id(response)] = shard.fetch_all(group, require_stable)
            return response

        found = self._groups.submit_each(
            ((group.group_id, group) for group in wanted),
            fetch,
            lambda group, error: _fetch_error(version, group, error.code),
            lambda responses: OffsetFetchResponse(groups=responses),
        )
        response = cast(OffsetFetchResponse, await awaited(found) if isinstance(found, Deferred) else found)

        def complete() -> Generator[None, None, OffsetFetchResponse]:
            for group in response.groups:
                for topic in topics_of.get(id(group), ()):
                    _add_topic(group, topic, image if version >= BY_TOPIC_ID else None)
                    yield
            return (yield from _response_in_steps(version, response.groups))

        return await context.until_done(complete())

    def _fetch_group(
        self, context: Context, require_stable: bool, shard: GroupShard, group: OffsetFetchRequestGroup
    ) -> OffsetFetchResponseGroup:
        image = self._image
        by_id = context.version >= BY_TOPIC_ID
        unknown: list[OffsetFetchResponseTopics] = []
        if by_id and group.topics is not None:
            named: list[OffsetFetchRequestTopics] = []
            for topic in group.topics:
                known = image.topics_by_id.get(TopicId(topic.topic_id))
                if known is None:
                    unknown.append(fetch_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    topic.name = known.name
                    named.append(topic)
            group.topics = named
        response: OffsetFetchResponseGroup = shard.fetch(group, require_stable)
        response.topics += unknown
        return response

    # -- OffsetDelete

    def offset_delete(self, context: Context, request: OffsetDeleteRequest) -> Any:
        image = self._image
        refused: list[OffsetDeleteResponseTopic] = []
        accepted: list[OffsetDeleteRequestTopic] = []
        for topic in request.topics:
            known = image.topics.get(topic.name)
            indexes = known.partitions if known is not None else {}
            missing = [p.partition_index for p in topic.partitions if p.partition_index not in indexes]
            topic.partitions = [p for p in topic.partitions if p.partition_index in indexes]
            if topic.partitions:
                accepted.append(topic)
            if missing:
                refused.append(
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetDeleteResponsePartition(
                                partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                            )
                            for index in missing
                        ],
                    )
                )
        request.topics = accepted

        def operate(shard: GroupShard, _: object) -> OffsetDeleteResponse:
            response: OffsetDeleteResponse = shard.delete_offsets(request)
            by_name = {topic.name: topic for topic in response.topics}
            for topic in refused:
                known = by_name.setdefault(topic.name, topic)
                if known is not topic:
                    known.partitions += topic.partitions
            response.topics = list(by_name.values())
            return response

        return self._groups.submit(
            request.group_id, operate, lambda error: OffsetDeleteResponse(error_code=error.code)
        )


def _merged(
    topics: list[OffsetCommitResponseTopic], more: Sequence[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Merge the responses of accepted and refused partitions into one entry per topic."""
    by_name = {(topic.name, topic.topic_id): topic for topic in topics}
    for topic in more:
        known = by_name.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(by_name.values())


def _fetch_error(version: int, group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    """An error of the whole group. Versions 0 and 1 carry it in each partition."""
    response = OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    if version < GROUP_ERROR_FROM:
        response.topics = [fetch_refused(topic, code) for topic in group.topics or ()]
    return response


def _add_topic(
    group: OffsetFetchResponseGroup, topic: OffsetFetchResponseTopics, image: ClusterImage | None
) -> None:
    """Add a topic, or a further part of the last one. With `image`, topics are identified by id alone."""
    if group.topics and group.topics[-1].name == topic.name:
        group.topics[-1].partitions += topic.partitions
        return
    if image is not None:
        known = image.topics.get(topic.name)
        if known is None:
            return
        topic.topic_id = known.id
    group.topics.append(topic)


def _fetch_response(version: int, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    return at_once(_response_in_steps(version, groups))


def _response_in_steps(
    version: int, groups: list[OffsetFetchResponseGroup]
) -> Generator[None, None, OffsetFetchResponse]:
    """Old versions have one group, and other structures for its topics."""
    if version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    only = groups[0]
    response = OffsetFetchResponse(error_code=only.error_code)
    for topic in only.topics:
        shown = OffsetFetchResponseTopic(name=topic.name)
        response.topics.append(shown)
        for number, p in enumerate(topic.partitions, 1):
            shown.partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=p.partition_index,
                    committed_offset=p.committed_offset,
                    committed_leader_epoch=p.committed_leader_epoch,
                    metadata=p.metadata,
                    error_code=p.error_code,
                )
            )
            if not number % _CONVERTED_AT_ONCE:
                yield
    return response
