"""Commits the offsets of the groups of a cut in the cluster into which it is restored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.archive.cuts import Cut, CutGroup, CutTopic
from penstock.archive.errors import ArchiveRefused
from penstock.backup.source import Cluster, SourceFailed
from penstock.backup.source_groups import coordinator_of
from penstock.model.config.keys import Copies
from penstock.model.config.topics import copied_configs
from penstock.model.errors import error_name
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

__all__ = ["Groups", "Target", "chosen_names", "chosen_targets", "commit_groups", "groups_of"]


class Target(NamedTuple):
    """A topic of a cut, and its name in the cluster into which it is restored."""

    topic: CutTopic
    name: str

    @property
    def configs(self) -> dict[str, str]:
        """The configs of the new topic: its records are local, and no link mirrors it."""
        return copied_configs(self.topic.configs, Copies.RESTORE)


def chosen_names(known: Iterable[str], wanted: Sequence[str], what: str) -> dict[str, str]:
    """The new names, by the old ones, of what `wanted` names (NAME or NAME=NEW), or of all."""
    there = set(known)
    if not wanted:
        return {name: name for name in sorted(there)}
    chosen: dict[str, str] = {}
    for text in wanted:
        old, _, new = (text, "", "") if text in there else text.partition("=")
        if old not in there:
            raise ArchiveRefused(f"the cut has no {what} {old}: it has {', '.join(sorted(there)) or 'none'}")
        if chosen.setdefault(old, new or old) != (new or old):
            raise ArchiveRefused(f"{what} {old} has two new names: {chosen[old]} and {new or old}")
    taken: dict[str, str] = {}
    for old, new in chosen.items():
        if taken.setdefault(new, old) != old:
            raise ArchiveRefused(f"the {what}s {taken[new]} and {old} cannot both be restored as {new}")
    return chosen


def chosen_targets(cut: Cut, wanted: Sequence[str]) -> list[Target]:
    """The topics that `wanted` names, or all of a cut."""
    names = chosen_names((topic.topic for topic in cut.topics), wanted, "topic")
    return [Target(topic, names[topic.topic]) for topic in cut.topics if topic.topic in names]


class Groups(NamedTuple):
    """Groups of a cut with offsets in the restored topics, by their new names, with these offsets only."""

    consumer: dict[str, CutGroup]
    share: dict[str, CutGroup]


def groups_of(cut: Cut, targets: Sequence[Target], wanted: Sequence[str] = ()) -> Groups:
    """The groups that `wanted` names, or all. No offset is behind the end of its partition."""
    ends = {
        (target.topic.topic, each.partition): each.end_offset + len(each.open)
        for target in targets
        for each in target.topic.partitions
    }
    names = chosen_names((each.group for each in (*cut.groups, *cut.share_groups)), wanted, "group")

    def found(groups: Iterable[CutGroup]) -> dict[str, CutGroup]:
        limited = (_limited(group, ends) for group in groups if group.group in names)
        return {names[group.group]: group for group in limited if group.offsets}

    return Groups(found(cut.groups), found(cut.share_groups))


def _limited(group: CutGroup, ends: Mapping[tuple[str, int], int]) -> CutGroup:
    """The group with its offsets in partitions that have an end, none behind it."""
    return CutGroup(
        group=group.group,
        offsets=tuple(
            msgspec.structs.replace(each, offset=min(each.offset, end))
            for each in group.offsets
            if (end := ends.get((each.topic, each.partition))) is not None
        ),
    )


async def commit_groups(client: Cluster, groups: Mapping[str, CutGroup], targets: Sequence[Target]) -> None:
    """Commit the offsets of `groups` (`groups_of`) in the topics under their new names."""
    names = {target.topic.topic: target.name for target in targets}
    for name, group in groups.items():
        offsets: dict[str, list[OffsetCommitRequestPartition]] = {}
        for each in group.offsets:
            offsets.setdefault(names[each.topic], []).append(
                OffsetCommitRequestPartition(
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_metadata=each.metadata,
                )
            )
        await _commit_group(client, name, offsets)


async def _commit_group(
    client: Cluster, group: str, offsets: Mapping[str, list[OffsetCommitRequestPartition]]
) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=client.topics[name].topic_id, partitions=partitions)
            for name, partitions in offsets.items()
        ],
    )
    answer = await client.send_to(await coordinator_of(client, group), OFFSET_COMMIT, request)
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                raise SourceFailed(f"group {group} cannot be restored: {error_name(each.error_code)}")
