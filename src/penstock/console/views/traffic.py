"""Which clients write and read which topics: the part of a cluster that a drawing can show.

A drawing has at most `TOPICS_MAX` topics, `GROUPS_MAX` groups and `PRODUCERS_MAX` producers. Topics with a
problem come first, then those in which groups lag, then busy ones, so that a limit hides what is quiet. The
functions walk over the commits of all groups: they run in a worker thread, with one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.console.views.knowledge import Gap
from penstock.console.views.samples import GroupSample, Key, Sample, is_internal, lag_cells

__all__ = ["GROUPS_MAX", "PARTITIONS_MAX", "Chosen", "Writer", "choose", "partitions_to_ask", "traffic_view"]

#: records per second of a topic; None while they are not known
Rate: TypeAlias = Callable[[str], float | None]
TOPICS_MAX: Final = 40
GROUPS_MAX: Final = 40
PRODUCERS_MAX: Final = 40
#: partitions whose leaders are asked for their producers
PARTITIONS_MAX: Final = 2_000
#: members of a group that a page names
_MEMBERS_MAX: Final = 20
#: groups in these states have no members
_IDLE: Final = ("Empty", "Dead")


class Chosen(NamedTuple):
    """The topics and groups of a drawing, how many there are, and the topics of each group's commits."""

    topics: list[str]
    groups: list[GroupSample]
    topics_total: int
    groups_total: int
    reads: dict[str, set[str]]


class Writer(NamedTuple):
    """A producer of a topic: its id, its transactional id if it has one, the time of its last record."""

    producer_id: int
    transactional_id: str | None
    topic: str
    last_ms: int
    in_transaction: bool


def choose(sample: Sample, rate: Rate, text: str, *, internal: bool = False) -> Chosen:
    """The topics and groups whose name contains `text`, with the groups and topics beside them."""
    wanted = text.lower()
    groups = {group.name: group for group in sample.groups or ()}
    reads = {name: {key[0] for key in group.commits} for name, group in groups.items()}
    readers: dict[str, list[str]] = {}
    for name, topics in reads.items():
        for topic in topics:
            readers.setdefault(topic, []).append(name)
    matching = {name for name in groups if wanted in name.lower()}
    found = [
        topic
        for topic in sample.by_topic
        if (internal or not is_internal(sample, topic))
        and (wanted in topic.lower() or not matching.isdisjoint(readers.get(topic, ())))
    ]
    found.sort(key=lambda topic: _topic_rank(sample, rate, topic, readers.get(topic, ())))
    shown = found[:TOPICS_MAX]
    beside = {name for topic in shown for name in readers.get(topic, ())}
    near = sorted(matching | beside, key=lambda name: _group_rank(sample, groups[name], name in beside))
    chosen = [groups[name] for name in near[:GROUPS_MAX]]
    return Chosen(shown, chosen, len(found), len(near), reads)


def _topic_rank(sample: Sample, rate: Rate, topic: str, readers: Iterable[str]) -> tuple[Any, ...]:
    partitions = [sample.partitions[key] for key in sample.by_topic[topic]]
    has_problem = any(p.leader < 0 or len(p.isr) < len(p.replicas) for p in partitions)
    lags = [lag.records for name in readers if (lag := sample.lags[name]) is not None]
    return (not has_problem, not max(lags, default=0), -(rate(topic) or 0.0), -max(lags, default=-1), topic)


def _group_rank(sample: Sample, group: GroupSample, is_beside: bool) -> tuple[Any, ...]:
    lag = sample.lags[group.name]
    return (not is_beside, group.state in _IDLE, -(0 if lag is None else lag.records), group.name)


def partitions_to_ask(sample: Sample, topics: Iterable[str]) -> dict[Key, int]:
    """The leaders of the topics' partitions, up to a limit."""
    keys = [key for topic in topics for key in sample.by_topic.get(topic, ())]
    leaders = {key: sample.partitions[key].leader for key in keys[:PARTITIONS_MAX]}
    return {key: leader for key, leader in leaders.items() if leader >= 0}


def traffic_view(
    sample: Sample,
    rate: Rate,
    chosen: Chosen,
    writers: Iterable[Writer],
    members: Mapping[str, list[dict[str, Any]] | Gap],
    gaps: Mapping[str, Gap | None],
) -> dict[str, Any]:
    """Nodes and edges of a drawing, and why some are missing."""
    topics = set(chosen.topics)
    reads: dict[tuple[str, str], dict[str, Any]] = {}
    for group in chosen.groups:
        own = members.get(group.name)
        assigned = set() if own is None or isinstance(own, Gap) else _assigned(own)
        parts = _by_topic(group, topics)
        for topic in sorted(parts.keys() | (assigned & topics)):
            lag = lag_cells(parts[topic].lag(sample, topic) if topic in parts else None)
            reads[group.name, topic] = {
                "group": group.name,
                "topic": topic,
                **lag,
                "assigned": topic in assigned,
            }
    named = sorted(writers, key=lambda each: (-each.last_ms, each.producer_id, each.topic))
    ids = list(dict.fromkeys(each.producer_id for each in named))
    drawn = set(ids[:PRODUCERS_MAX])
    return {
        "topics": [_topic(sample, rate, name) for name in chosen.topics],
        "topics_total": chosen.topics_total,
        "groups": [_group(sample, group, members.get(group.name)) for group in chosen.groups],
        "groups_total": chosen.groups_total,
        "producers": [_producer(n, named) for n in ids[:PRODUCERS_MAX]],
        "producers_total": len(ids),
        "reads": list(reads.values()),
        "writes": [
            {
                "producer": str(each.producer_id),
                "topic": each.topic,
                "last_ms": str(each.last_ms),
                "in_transaction": each.in_transaction,
            }
            for each in named
            if each.producer_id in drawn
        ],
        "gaps": {name: None if gap is None else gap.shown() for name, gap in gaps.items()},
    }


def _by_topic(group: GroupSample, topics: set[str]) -> dict[str, GroupSample]:
    """The group in each topic: its lag there takes one walk over its commits in that topic."""
    commits: dict[str, dict[Key, int]] = {}
    for key, offset in group.commits.items():
        if key[0] in topics:
            commits.setdefault(key[0], {})[key] = offset
    return {topic: group._replace(commits=own) for topic, own in commits.items()}


def _assigned(members: Iterable[dict[str, Any]]) -> set[str]:
    return {each["topic"] for member in members for each in member["assignment"]}


def _topic(sample: Sample, rate: Rate, name: str) -> dict[str, Any]:
    partitions = [sample.partitions[key] for key in sample.by_topic[name]]
    return {
        "name": name,
        "partitions": len(partitions),
        "offline": sum(p.leader < 0 for p in partitions),
        "under_replicated": sum(len(p.isr) < len(p.replicas) for p in partitions),
        "records_per_s": rate(name),
    }


def _group(sample: Sample, group: GroupSample, members: list[dict[str, Any]] | Gap | None) -> dict[str, Any]:
    known = members if isinstance(members, list) else None
    clients = [{"client": each["client"], "host": each["host"]} for each in known or ()]
    return {
        "name": group.name,
        "kind": group.kind,
        "state": group.state,
        **lag_cells(sample.lags[group.name]),
        "members": None if known is None else len(known),
        "members_gap": members.shown() if isinstance(members, Gap) else None,
        "clients": clients[:_MEMBERS_MAX],
    }


def _producer(producer_id: int, writers: list[Writer]) -> dict[str, Any]:
    own = [each for each in writers if each.producer_id == producer_id]
    return {
        "id": str(producer_id),
        "transactional_id": next((each.transactional_id for each in own if each.transactional_id), None),
        "last_ms": str(max(each.last_ms for each in own)),
    }
