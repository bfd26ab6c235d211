"""Groups of all types as the list and the page of one group show them, and the preview of a reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.console.views.samples import GroupSample, History, Key, Sample, as_points, lag_cells
from penstock.model.errors import ProtocolError
from penstock.observability.lag import partition_lag
from penstock.observability.streams_tasks import read_partitions, task_names
from penstock.wire.apis.consumer_group_describe import DescribedGroup as ConsumerGroup
from penstock.wire.apis.describe_groups import DescribedGroup as ClassicGroup
from penstock.wire.apis.share_group_describe import DescribedGroup as ShareGroup
from penstock.wire.apis.streams_group_describe import DescribedGroup as StreamsGroup
from penstock.wire.compiler import decoder
from penstock.wire.schema import Struct, array, int32, nullable_bytes, string

__all__ = [
    "Move",
    "Target",
    "classic_view",
    "consumer_view",
    "group_rows",
    "offset_rows",
    "reset_moves",
    "share_view",
    "streams_view",
]

_VERSION_BYTES: Final = 2
#: members of a share group in the row of one partition
_MEMBERS_SHOWN: Final = 3
TARGETS: Final = ("earliest", "latest", "offset", "time", "shift")


class _AssignedTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class _Assignment(Struct):
    assigned_partitions: list[_AssignedTopic] = array(_AssignedTopic)
    user_data: bytes | None = nullable_bytes()


def group_rows(history: History) -> list[dict[str, Any]] | None:
    """One row per group; None if no broker lists groups for this user."""
    sample = history.last
    if sample is None or sample.groups is None:
        return None
    return [
        {
            "name": group.name,
            "kind": group.kind,
            "state": group.state,
            "protocol": group.protocol,
            "coordinator": group.coordinator,
            "topics": len({key[0] for key in group.commits}),
            **lag_cells(sample.lags[group.name]),
            "gap": None if group.gap is None else group.gap.shown(),
            "series": as_points(history.groups.get(group.name), 60),
        }
        for group in sample.groups
    ]


def classic_view(group: ClassicGroup) -> dict[str, Any]:
    return {
        "state": group.group_state,
        "protocol": group.protocol_data or None,
        "epoch": None,
        "members": [
            {
                "id": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "epoch": None,
                "assignment": _classic_assignment(member.member_assignment),
                "subscribed": [],
            }
            for member in group.members
        ],
    }


def _classic_assignment(data: bytes) -> list[dict[str, Any]]:
    """Partitions in the format of consumers; empty for other protocols, such as Connect's."""
    if len(data) <= _VERSION_BYTES:
        return []
    try:
        found = decoder(_Assignment, 0, False)(memoryview(data), _VERSION_BYTES)
    except (ProtocolError, IndexError, ValueError):
        return []
    return [
        {"topic": each.topic, "partitions": sorted(each.partitions)} for each in found.assigned_partitions
    ]


def consumer_view(group: ConsumerGroup | ShareGroup) -> dict[str, Any]:
    """A group of the consumer protocol (KIP-848) or a share group (KIP-932)."""
    return {
        "state": group.group_state,
        "protocol": group.assignor_name or None,
        "epoch": group.group_epoch,
        "members": [
            {
                "id": member.member_id,
                "instance": getattr(member, "instance_id", None),
                "client": member.client_id,
                "host": member.client_host,
                "epoch": member.member_epoch,
                "subscribed": list(member.subscribed_topic_names),
                "assignment": [
                    {"topic": each.topic_name, "partitions": sorted(each.partitions)}
                    for each in member.assignment.topic_partitions
                ],
            }
            for member in group.members
        ],
    }


share_view = consumer_view


def streams_view(group: StreamsGroup) -> dict[str, Any]:
    """A streams group (KIP-1071). Members have the partitions that their active tasks read, and all tasks."""
    subtopologies = [] if group.topology is None else group.topology.subtopologies or []
    subscribed = sorted({topic for each in subtopologies for topic in each.source_topics})
    return {
        "state": group.group_state,
        "protocol": "streams",
        "epoch": group.group_epoch,
        "members": [
            {
                "id": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "epoch": member.member_epoch,
                "subscribed": subscribed,
                "assignment": [
                    {"topic": topic, "partitions": partitions}
                    for topic, partitions in read_partitions(group, member).items()
                ],
                "tasks": {
                    "active": task_names(member.assignment.active_tasks),
                    "standby": task_names(member.assignment.standby_tasks),
                    "warm-up": task_names(member.assignment.warmup_tasks),
                },
            }
            for member in group.members
        ],
    }


def offset_rows(
    commits: Mapping[Key, int],
    ends: Mapping[Key, int],
    members: list[dict[str, Any]],
    lags: Mapping[Key, int] | None = None,
    starts: Mapping[Key, int] | None = None,
) -> list[dict[str, Any]]:
    """Partitions of the group: those with a commit or a member, and the others in `starts`.

    A partition without a commit counts from its first offset in `starts`. `lags` are those that the
    coordinator of a share group states. Its members share partitions.
    """
    owners: dict[Key, list[str]] = {}
    for member in members:
        for each in member["assignment"]:
            for partition in each["partitions"]:
                owners.setdefault((each["topic"], partition), []).append(member["client"] or member["id"])
    rows = []
    for key in sorted({*commits, *owners, *(starts or ())}):
        committed, end = commits.get(key), ends.get(key)
        lag = partition_lag(committed, (starts or {}).get(key), end)
        lag = (lags or {}).get(key, lag)
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "committed": None if committed is None else str(committed),
                "end": None if end is None else str(end),
                "lag": lag,
                "member": _names(owners.get(key, [])),
            }
        )
    return rows


def _names(members: list[str]) -> str | None:
    shown = ", ".join(sorted(members)[:_MEMBERS_SHOWN])
    more = len(members) - _MEMBERS_SHOWN
    return (f"{shown} and {more} more" if more > 0 else shown) or None


class Target(NamedTuple):
    """Where to: earliest, latest, an offset, a time (whose offsets are looked up), or a shift."""

    kind: str
    value: int = 0


class Move(NamedTuple):
    """A change of a committed offset; `before` is None without a commit."""

    topic: str
    partition: int
    before: int | None
    after: int

    def shown(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "before": None if self.before is None else str(self.before),
            "after": str(self.after),
            "change": None if self.before is None else str(self.after - self.before),
        }


def reset_moves(
    target: Target,
    keys: list[Key],
    commits: Mapping[Key, int],
    starts: Mapping[Key, int],
    ends: Mapping[Key, int],
    looked_up: Mapping[Key, int],
) -> list[Move]:
    """The new offsets, always between the first and the next offset of the log.

    A partition without a record as late as the time goes to its end. A shift leaves out partitions without a
    commit, and so does a partition whose leader has not responded.
    """
    moves = []
    for key in keys:
        if key not in starts or key not in ends:
            continue
        committed = commits.get(key)
        if target.kind == "shift" and committed is None:
            continue
        wanted = {
            "earliest": starts[key],
            "latest": ends[key],
            "offset": target.value,
            "time": looked_up.get(key, ends[key]),
            "shift": (committed or 0) + target.value,
        }[target.kind]
        moves.append(Move(*key, committed, max(starts[key], min(ends[key], wanted))))
    return moves


def group_of(sample: Sample, name: str) -> GroupSample | None:
    return next((group for group in sample.groups or () if group.name == name), None)
