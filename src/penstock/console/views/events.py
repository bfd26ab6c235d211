"""Changes between two samples of a cluster, as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.console.views.samples import Key, Partition, Sample

__all__ = ["Event", "changes"]

#: lines of one kind about single partitions, topics or groups; more are counted
_LINES_MAX: Final = 5


class Event(NamedTuple):
    """`page` is the fragment of the page with details; `severity` is info, warning or error."""

    time_s: float
    severity: str
    text: str
    page: str

    def shown(self) -> dict[str, Any]:
        return self._asdict()


def changes(before: Sample, after: Sample) -> list[Event]:
    """The events between two samples, the most important first."""
    found = [*_brokers(before, after), *_partitions(before, after), *_topics(before, after)]
    return [*found, *_groups(before, after)]


def _brokers(before: Sample, after: Sample) -> Iterable[Event]:
    now = after.time_s
    old = {broker.node_id for broker in before.metadata.brokers}
    new = {broker.node_id for broker in after.metadata.brokers}
    for broker in sorted(old - new):
        yield Event(now, "error", f"Broker {broker} left the cluster", "cluster")
    for broker in sorted(new - old):
        yield Event(now, "info", f"Broker {broker} joined the cluster", "cluster")
    was, now_active = _controller(before), _controller(after)
    if was is not None and now_active is not None and was != now_active:
        yield Event(now, "warning", f"Controller moved from node {was} to node {now_active}", "cluster")


def _controller(sample: Sample) -> int | None:
    if sample.quorum is not None:
        return sample.quorum.leader_id if sample.quorum.leader_id >= 0 else None
    # Kafka 4 returns a random broker as the controller in Metadata responses.
    return None


def _partitions(before: Sample, after: Sample) -> list[Event]:
    kept = [
        (key, before.partitions[key], p) for key, p in after.partitions.items() if key in before.partitions
    ]
    changed = [each for each in kept if each[1] != each[2]]
    now = after.time_s
    offline = [_line(key, old, new) for key, old, new in changed if new.leader < 0 <= old.leader]
    shrunk = [
        _isr_line(k, old, new) for k, old, new in changed if set(old.isr) - set(new.isr) and new.leader >= 0
    ]
    grown = [_isr_line(k, old, new) for k, old, new in changed if set(new.isr) - set(old.isr)]
    moved = [_line(k, old, new) for k, old, new in changed if new.leader >= 0 and new.leader != old.leader]
    return [
        *_limited(now, "error", offline, "partitions lost their leader"),
        *_limited(now, "warning", moved, "partitions changed their leader"),
        *_limited(now, "warning", shrunk, "in-sync replica sets shrank"),
        *_limited(now, "info", grown, "in-sync replica sets grew"),
    ]


def _line(key: Key, old: Partition, new: Partition) -> tuple[str, str]:
    leader = "no leader" if new.leader < 0 else f"leader {new.leader}"
    was = "none" if old.leader < 0 else str(old.leader)
    return f"{key[0]}-{key[1]}: {leader} (was {was})", f"topics/{key[0]}"


def _isr_line(key: Key, old: Partition, new: Partition) -> tuple[str, str]:
    was, now = (",".join(map(str, sorted(p.isr))) for p in (old, new))
    return f"{key[0]}-{key[1]}: in-sync replicas {now} (were {was})", f"topics/{key[0]}"


def _topics(before: Sample, after: Sample) -> list[Event]:
    now = after.time_s
    created = [
        (f"Topic {name} was created", f"topics/{name}") for name in _new(after.topic_ids, before.topic_ids)
    ]
    deleted = [(f"Topic {name} was deleted", "topics") for name in _new(before.topic_ids, after.topic_ids)]
    return [
        *_limited(now, "info", created, "topics were created"),
        *_limited(now, "warning", deleted, "topics were deleted"),
    ]


def _groups(before: Sample, after: Sample) -> list[Event]:
    if before.groups is None or after.groups is None:
        return []
    old = {group.name: group.state for group in before.groups}
    new = {group.name: group.state for group in after.groups}
    moved = [
        (f"Group {name}: {new[name]} (was {old[name]})", f"groups/{name}")
        for name in sorted(new.keys() & old.keys())
        if new[name] != old[name]
    ]
    made = [(f"Group {name} appeared", f"groups/{name}") for name in _new(new, old)]
    return [
        *_limited(after.time_s, "info", made, "groups appeared"),
        *_limited(after.time_s, "info", moved, "groups changed their state"),
    ]


def _new(after: Mapping[str, object], before: Mapping[str, object]) -> list[str]:
    return sorted(after.keys() - before.keys())


def _limited(now: float, severity: str, lines: list[tuple[str, str]], more: str) -> list[Event]:
    found = [Event(now, severity, text, page) for text, page in lines[:_LINES_MAX]]
    if len(lines) > _LINES_MAX:
        found.append(Event(now, severity, f"{len(lines) - _LINES_MAX} more {more}", "topics"))
    return found
