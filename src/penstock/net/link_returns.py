"""Failback: topics of this cluster become mirrors of the cluster that took over from it.

Each step can be repeated after an interruption. Nothing is cut before all partitions have been compared and
the caller has agreed, and a log is copied to the quarantine before it is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model.config.mirrored_topics import Cut, MirroredTopic, MirrorState
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicPartition, parse_topic_id
from penstock.net.committed_limits import limit_committed
from penstock.net.link_client import (
    LinkError,
    LinkPort,
    check_exists,
    link_configs,
    look,
    set_links,
    topic_links,
)
from penstock.wire.apis.describe_log_dirs import MirroredLog

__all__ = ["Comparison", "Returned", "compare", "give_up", "take_back"]

_POLL_S: Final = 0.2


class Returned(NamedTuple):
    """A partition that returns: the common point with the source, and the number of records behind it."""

    topic: str
    partition: int
    common_offset: int
    #: the records behind it, which only this cluster has
    set_aside_records: int
    leader_epoch: int
    source_id: TopicId


class Comparison(NamedTuple):
    """What `compare` has found."""

    #: the former values of `penstock.link`, for `give_up`
    before: Mapping[str, str]
    #: the partitions that are to be cut, without those of topics that have returned already
    partitions: Sequence[Returned]


async def compare(cluster: LinkPort, link: str, names: Collection[str], wait_s: float) -> Comparison:
    """Make topics read-only, and wait until each leader has compared its log with the source.

    If that fails, the topics are as they were before.
    """
    await check_exists(cluster, link)
    before = await topic_links(cluster, names)
    wanted = _returning(link, before, (await link_configs(cluster, link)).get("prefix", ""))
    former = {name: before[name] for name in wanted}
    await set_links(cluster, wanted)
    try:
        now = await topic_links(cluster, names)
        returning = [name for name, text in now.items() if text and _state(text) is MirrorState.RETURNING]
        deadline = _now() + wait_s
        logs = await _await(cluster, link, returning, lambda log: log.common_offset >= 0, deadline)
    except BaseException:
        # Also an interrupted command: the topics would stay read-only.
        await give_up(cluster, former)
        raise
    return Comparison(before, [_returned(*key, log) for key, log in logs.items()])


def _returning(link: str, links: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The new `penstock.link` of topics that do not return yet. LinkError if one cannot."""
    wanted = {}
    for name, text in links.items():
        topic = MirroredTopic.parse(text) if text else None
        if topic is None or not topic.is_read_only or topic.is_source:
            if not name.startswith(prefix):
                raise LinkError(f"topic {name} does not begin with the prefix {prefix} of link {link}")
            source = name.removeprefix(prefix)
            # The number lifts the fence at a source from which this cluster has taken over.
            fence = 0 if topic is None or topic.is_source else topic.fence
            returning = MirroredTopic(link, MirrorState.RETURNING, NO_TOPIC_ID, source, fence=fence)
            wanted[name] = str(returning)
        elif topic.link != link or not (topic.state is MirrorState.RETURNING or topic.cuts):
            raise LinkError(f"topic {name} is mirrored by link {topic.link} already")
    return wanted


def _state(text: str) -> MirrorState:
    return MirroredTopic.parse(text).state


def _returned(topic: str, partition: int, log: MirroredLog) -> Returned:
    records, source_id = log.divergent_records, parse_topic_id(log.source_topic_id)
    return Returned(topic, partition, log.common_offset, records, log.leader_epoch, source_id)


async def give_up(cluster: LinkPort, before: Mapping[str, str]) -> None:
    """Give topics the state that they had before `compare`."""
    await set_links(cluster, before)


async def take_back(
    cluster: LinkPort, link: str, names: Collection[str], compared: Sequence[Returned], wait_s: float
) -> list[str]:
    """Cut the logs at the common points, and wait until all partitions are mirrored.

    Committed offsets behind the points are set back first. Returns the groups whose offsets stay, because
    they have members.
    """
    deadline = _now() + wait_s
    topics: dict[str, list[Returned]] = {}
    for each in compared:
        topics.setdefault(each.topic, []).append(each)
    ends = {TopicPartition(each.topic, each.partition): each.common_offset for each in compared}
    left = await limit_committed(cluster, ends)
    values = {}
    for name, text in (await topic_links(cluster, topics)).items():
        partitions = sorted(topics[name], key=lambda each: each.partition)
        cuts = tuple(Cut(each.common_offset, each.leader_epoch) for each in partitions)
        state, source_id = MirrorState.MIRRORING, partitions[0].source_id
        values[name] = str(MirroredTopic.parse(text)._replace(state=state, source_id=source_id, cuts=cuts))
    await set_links(cluster, values)
    await _await(cluster, link, names, lambda log: log.phase == "mirroring", deadline)
    return left


async def _await(
    cluster: LinkPort,
    link: str,
    names: Collection[str],
    is_done: Callable[[MirroredLog], bool],
    deadline: float,
) -> dict[tuple[str, int], MirroredLog]:
    """The reports of all partitions of topics once all are done; a LinkError that names one that is not."""
    while names:
        mirrors = (await look(cluster, link, names)).of(names)
        found = {(each.topic, each.partition): each.log for each in mirrors if each.log is not None}
        waiting = [
            (each.topic, each.partition) for each in mirrors if each.log is None or not is_done(each.log)
        ]
        if mirrors and not waiting:
            return found
        if _now() > deadline:
            name, index = waiting[0] if waiting else (next(iter(names)), 0)
            log = found.get((name, index))
            reason = "it has no leader here" if log is None else log.reason or log.phase
            raise LinkError(
                f"{len(waiting)} of {len(mirrors)} partitions are not ready: {name}-{index}: {reason}. "
                f"See `penstock link describe {link}`, and repeat the command"
            )
        await asyncio.sleep(_POLL_S)
    return {}


def _now() -> float:
    return asyncio.get_running_loop().time()
