"""Administration of share groups: description, and the offsets of their share partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.groups.assignors import Assignment
from penstock.groups.ledger import GroupLedger
from penstock.groups.share_group import ShareGroup, ShareMember
from penstock.groups.share_requests import SIMPLE, ShareRequests
from penstock.groups.share_state import InitializeShareState
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis import share_group_describe as described

__all__ = ["ShareAdministration"]

_UNKNOWN_TOPIC = "This server does not host this topic-partition."


class ShareAdministration:
    """The requests of administrators about one shard's share groups."""

    __slots__ = ("_expire_sessions", "_ledger", "_requests")

    def __init__(
        self, ledger: GroupLedger, requests: ShareRequests, expire_sessions: Callable[[str], None]
    ) -> None:
        """`expire_sessions` removes the members of a group whose sessions have expired."""
        self._ledger = ledger
        self._requests = requests
        self._expire_sessions = expire_sessions

    def describe(self, group_id: str) -> described.DescribedGroup:
        """A share group; GROUP_ID_NOT_FOUND for any other."""
        try:
            group = self._requests.find(group_id, "Group")
        except ApiError as e:
            return described.DescribedGroup(group_id=group_id, error_code=e.code, error_message=e.message)
        image = self._ledger.env.image
        return described.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=SIMPLE,
            members=[_described(member, image) for member in group.members.values()],
        )

    def initialized(self, group_id: str) -> Assignment:
        """The share partitions of a group; none if the group does not exist."""
        group = self._ledger.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return {}
        return {topic_id: set(indexes) for topic_id, indexes in group.initialized.items()}

    def begin_reset(
        self, request: alter.AlterShareGroupOffsetsRequest
    ) -> tuple[InitializeShareState, alter.AlterShareGroupOffsetsResponse]:
        """Begin to set start offsets. Returns what the share coordinator has to do, and the response then."""
        group = self._empty_group(request.group_id)
        topics = self._ledger.env.image.topics
        offsets: dict[bytes, dict[int, int]] = {}
        response = alter.AlterShareGroupOffsetsResponse()
        for wanted in request.topics:
            topic = topics.get(wanted.topic_name)
            count = 0 if topic is None else len(topic.partitions)
            answer = alter.AlterShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
            response.responses.append(answer)
            if topic is not None:
                answer.topic_id = topic.id
            for partition in wanted.partitions:
                result = alter.AlterShareGroupOffsetsResponsePartition(
                    partition_index=partition.partition_index
                )
                answer.partitions.append(result)
                if topic is not None and 0 <= partition.partition_index < count:
                    offsets.setdefault(topic.id, {})[partition.partition_index] = partition.start_offset
                else:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    result.error_message = _UNKNOWN_TOPIC
        epoch = self._requests.state.begin_reset(group, offsets) if offsets else group.epoch
        return InitializeShareState(group.id, epoch, offsets), response

    def begin_offset_deletion(
        self, group_id: str, names: Sequence[str]
    ) -> tuple[Assignment, list[delete.DeleteShareGroupOffsetsResponseTopic]]:
        """Begin to delete the offsets of topics. Returns their partitions, and the topics that have none."""
        group = self._requests.find(group_id)
        self._check_empty(group)
        topics = self._ledger.env.image.topics
        failed: list[delete.DeleteShareGroupOffsetsResponseTopic] = []
        ids: list[bytes] = []
        for name in names:
            topic = topics.get(name)
            if topic is not None and (topic.id in group.initialized or topic.id in group.deleting):
                ids.append(topic.id)
                continue
            failed.append(
                delete.DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=_UNKNOWN_TOPIC
                    if topic is None
                    else "There is no offset information to delete.",
                )
            )
        return (self._requests.state.begin_deletion(group, ids) if ids else {}), failed

    def begin_group_deletion(self, group_id: str) -> Assignment:
        """Begin to delete all share partitions of an empty group. Returns them."""
        group = self._requests.find(group_id)
        self._check_empty(group)
        known = {*group.initialized, *group.initializing, *group.deleting}
        return self._requests.state.begin_deletion(group, known) if known else {}

    def _empty_group(self, group_id: str) -> ShareGroup:
        group = self._requests.find_or_new(group_id)
        self._check_empty(group)
        return group

    def _check_empty(self, group: ShareGroup) -> None:
        self._expire_sessions(group.id)
        if group.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def _described(member: ShareMember, image: ClusterImage) -> described.Member:
    return described.Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=described.Assignment(
            topic_partitions=[
                described.TopicPartitions(
                    topic_id=topic_id,
                    topic_name=image.topics_by_id[TopicId(topic_id)].name,
                    partitions=sorted(indexes),
                )
                for topic_id, indexes in member.assigned.items()
                if topic_id in image.topics_by_id
            ]
        ),
    )
