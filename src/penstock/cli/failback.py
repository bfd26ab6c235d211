"""`penstock link failback`: topics of this cluster become mirrors of the cluster that took over from it.

Each step can be repeated after an interruption. Nothing is cut before all partitions have been compared and
the user has agreed, and a log is copied to the quarantine before it is cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.cli.links import link_configs, look, set_links, topic_links
from penstock.model.config.mirrored_topics import Cut, MirroredTopic, MirrorState
from penstock.model.ids import NO_TOPIC_ID, TopicId, parse_topic_id
from penstock.wire.apis.describe_log_dirs import MirroredLog

__all__ = ["Returned", "compare", "give_up", "take_back"]

_POLL_S: Final = 0.2


class Returned(NamedTuple):
    """A partition that returns: the common point with the source, and the number of records behind it."""

    topic: str
    partition: int
    common_offset: int
    set_aside_records: int
    leader_epoch: int
    source_id: TopicId


def compare(
    line: DirectLine, link: str, names: Collection[str], wait_s: float
) -> tuple[dict[str, str], list[Returned]]:
    """Make topics read-only, and wait until each leader has compared its log with the source.

    Returns the former values of `penstock.link` for `give_up`, and the partitions that are to be cut. Topics
    that have returned already are left out of them.
    """
    before, prefix = topic_links(line, names), link_configs(line, link).get("prefix", "")
    wanted = {}
    for name in names:
        text = before.get(name, "")
        topic = MirroredTopic.parse(text) if text else None
        if topic is None or not topic.is_read_only or topic.state is MirrorState.FENCED:
            if not name.startswith(prefix):
                raise Failure(f"topic {name} does not begin with the prefix {prefix} of link {link}")
            source = name.removeprefix(prefix)
            wanted[name] = str(MirroredTopic(link, MirrorState.RETURNING, NO_TOPIC_ID, source))
        elif topic.link != link or not (topic.state is MirrorState.RETURNING or topic.cuts):
            raise Failure(f"topic {name} is mirrored by link {topic.link} already")
    set_links(line, wanted)
    try:
        returning = [
            name
            for name, text in topic_links(line, names).items()
            if text and MirroredTopic.parse(text).state is MirrorState.RETURNING
        ]
        logs = _await(line, link, returning, lambda log: log.common_offset >= 0, time.monotonic() + wait_s)
    except (Failure, KeyboardInterrupt):
        give_up(line, {name: before.get(name, "") for name in wanted})
        raise
    return before, [_returned(*key, log) for key, log in logs.items()]


def _returned(topic: str, partition: int, log: MirroredLog) -> Returned:
    records, source_id = log.divergent_records, parse_topic_id(log.source_topic_id)
    return Returned(topic, partition, log.common_offset, records, log.leader_epoch, source_id)


def give_up(line: DirectLine, before: Mapping[str, str]) -> None:
    """Give topics the state that they had before `compare`."""
    set_links(line, before)


def take_back(
    line: DirectLine, link: str, names: Collection[str], compared: Sequence[Returned], wait_s: float
) -> None:
    """Cut the logs at the common points, and wait until all partitions are mirrored."""
    deadline = time.monotonic() + wait_s
    topics: dict[str, list[Returned]] = {}
    for each in compared:
        topics.setdefault(each.topic, []).append(each)
    values = {}
    for name, text in topic_links(line, topics).items():
        partitions = sorted(topics[name], key=lambda each: each.partition)
        cuts = tuple(Cut(each.common_offset, each.leader_epoch) for each in partitions)
        state, source_id = MirrorState.MIRRORING, partitions[0].source_id
        values[name] = str(MirroredTopic.parse(text)._replace(state=state, source_id=source_id, cuts=cuts))
    set_links(line, values)
    _await(line, link, names, lambda log: log.phase == "mirroring", deadline)


def _await(
    line: DirectLine,
    link: str,
    names: Collection[str],
    is_done: Callable[[MirroredLog], bool],
    deadline: float,
) -> dict[tuple[str, int], MirroredLog]:
    """The reports of all partitions of topics once all are done; a Failure that names one that is not."""
    while True:
        mirrors = look(line, link).of(names)
        found = {(each.topic, each.partition): each.log for each in mirrors if each.log is not None}
        waiting = [
            (each.topic, each.partition) for each in mirrors if each.log is None or not is_done(each.log)
        ]
        if mirrors and not waiting:
            return found
        if not names:
            return {}
        if time.monotonic() > deadline:
            name, index = waiting[0] if waiting else (next(iter(names)), 0)
            log = found.get((name, index))
            reason = "it has no leader here" if log is None else log.reason or log.phase
            raise Failure(
                f"{len(waiting)} of {len(mirrors)} partitions are not ready: {name}-{index}: {reason}. "
                f"See `penstock link describe {link}`, and repeat the command"
            )
        time.sleep(_POLL_S)
