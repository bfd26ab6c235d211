"""The language of the golden scenarios: one event per line, and the responses that it causes."""

from __future__ import annotations

import shlex
from typing import Any

from penstock.groups.consumer_protocol import decode_assignment, encode_assignment
from penstock.groups.settings import GroupSettings
from penstock.model.errors import ErrorCode
from penstock.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.describe_groups import DescribedGroup
from penstock.wire.apis.heartbeat import HeartbeatRequest
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.apis.list_groups import ListGroupsResponse
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
from penstock.wire.apis.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.groups.shard_driver import ShardDriver, subscription, topic_id

__all__ = ["run_script"]

GROUP = "g"


class Script:
    """Runs a scenario line by line: a command, the client's name, and options as NAME=VALUE."""

    def __init__(self) -> None:
        self.driver = ShardDriver(topics={"t": 4})

    def run(self, line: str) -> list[str]:
        command, *words = shlex.split(line, comments=True) or [""]
        client_name = words[0] if words and "=" not in words[0] else ""
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.driver.answered.clear()
        getattr(self, f"do_{command}")(client_name, options)
        return [_shown(pending) for pending in self.driver.answered]

    # -- settings, time, topics

    def do_settings(self, _: str, options: dict[str, str]) -> None:
        values: dict[str, Any] = {name: int(value) for name, value in options.items()}
        self.driver.env.settings = GroupSettings(**values)

    def do_sleep(self, ms: str, _: dict[str, str]) -> None:
        self.driver.sleep(int(ms))

    def do_stall(self, ms: str, _: dict[str, str]) -> None:
        """Time passes on a busy broker: the next request comes before the timers that are due."""
        self.driver.now_ms += int(ms)

    def do_topic(self, name: str, options: dict[str, str]) -> None:
        if options["partitions"] == "0":
            self.driver.remove_topic(name)
        else:
            self.driver.add_topic(name, int(options["partitions"]))

    def do_restart(self, _: str, __: dict[str, str]) -> None:
        self.driver.restart()

    # -- members

    def do_join(self, client_name: str, options: dict[str, str]) -> None:
        names = options.get("protocols", "range").split(",")
        topics = options.get("topics", "t").split(",")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "30000")),
            member_id=options.get("id", ""),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(
                    name=n, metadata=subscription(topics, _parts(options.get("owned", "")))
                )
                for n in names
                if n
            ],
        )
        version = int(options.get("version", "9"))
        client = self.driver.client(client_name, version)
        self.driver.submit(client_name, lambda shard, pending: shard.members.join(request, client, pending))

    def do_sync(self, client_name: str, options: dict[str, str]) -> None:
        given = dict(pair.split(":") for pair in options.get("assign", "").split(",") if pair)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options["generation"]),
            member_id=options["id"],
            group_instance_id=options.get("instance"),
            protocol_name=options.get("protocol"),
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=_opaque(what))
                for member, what in given.items()
            ],
        )
        self.driver.submit(client_name, lambda shard, pending: shard.members.sync(request, pending))

    def do_heartbeat(self, client_name: str, options: dict[str, str]) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=int(options["generation"]),
            member_id=options["id"],
            group_instance_id=options.get("instance"),
        )
        self.driver.submit(client_name, lambda shard, _: shard.members.heartbeat(request))

    def do_leave(self, client_name: str, options: dict[str, str]) -> None:
        members = [
            MemberIdentity(member_id=member_id, group_instance_id=options.get("instance"))
            for member_id in options.get("id", "").split(",")
        ]
        request = LeaveGroupRequest(group_id=GROUP, members=members)
        self.driver.submit(client_name, lambda shard, _: shard.members.leave(request))

    # -- members of the new protocol

    def do_beat(self, client_name: str, options: dict[str, str]) -> None:
        epoch = int(options.get("epoch", "0"))
        owned: list[TopicPartitions] | None = [] if epoch == 0 else None
        if "owned" in options:
            owned = [TopicPartitions(topic_id=topic_id(t), partitions=p) for t, p in _parts(options["owned"])]
        names = options.get("topics", "t" if epoch == 0 and "regex" not in options else None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=options.get("id", client_name),
            member_epoch=epoch,
            instance_id=options.get("instance"),
            rebalance_timeout_ms=int(options.get("rebalance", "30000" if epoch == 0 else "-1")),
            subscribed_topic_names=None if names is None else [n for n in names.split(",") if n],
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=owned,
        )
        client = self.driver.client(client_name, 1, options.get("regex"))
        self.driver.submit(client_name, lambda shard, _: shard.members.consumer_heartbeat(request, client))

    # -- offsets

    def do_commit(self, client_name: str, options: dict[str, str]) -> None:
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=int(options.get("generation", "-1")),
            member_id=options.get("id", ""),
            group_instance_id=options.get("instance"),
            retention_time_ms=int(options.get("retention", "-1")),
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    topic_id=topic_id("t"),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=int(options["offset"]),
                            committed_metadata=options.get("metadata", ""),
                        )
                    ],
                )
            ],
        )
        client = self.driver.client(client_name, int(options.get("version", "9")))
        self.driver.submit(client_name, lambda shard, _: shard.commit(request, client.version))

    def do_fetch(self, client_name: str, _: dict[str, str]) -> None:
        request = OffsetFetchRequestGroup(
            group_id=GROUP, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        self.driver.submit(client_name or "reader", lambda shard, _: shard.fetch(request))

    # -- administration

    def do_show(self, _: str, __: dict[str, str]) -> None:
        self.driver.submit("admin", lambda shard, _: shard.describe(GROUP))

    def do_list(self, _: str, __: dict[str, str]) -> None:
        self.driver.submit("admin", lambda shard, _: ListGroupsResponse(groups=list(shard.list((), ()))))

    def do_describe(self, _: str, __: dict[str, str]) -> None:
        self.driver.submit("admin", lambda shard, _: shard.describe_consumer(GROUP))

    def do_delete(self, _: str, __: dict[str, str]) -> None:
        self.driver.submit("admin", lambda shard, _: shard.delete(GROUP))


def _parts(text: str) -> list[tuple[str, list[int]]]:
    """`t:0,1 u:2` as (topic, partitions)."""
    pairs = [word.split(":") for word in text.split()]
    return [(topic, [int(index) for index in indexes.split(",")]) for topic, indexes in pairs]


def _opaque(what: str) -> bytes:
    """`t=0+1` is an assignment as consumers write it, anything else just bytes."""
    topic, _, indexes = what.partition("=")
    return encode_assignment({topic: [int(i) for i in indexes.split("+")]}, 1) if indexes else what.encode()


def _readable(assignment: bytes) -> str:
    """A consumer's assignment, or the plain text that scenarios use as opaque bytes."""
    if not assignment.startswith(b"\x00"):
        return assignment.decode()
    topics = decode_assignment(assignment).assigned_partitions
    return " ".join(f"{t.topic}:{','.join(map(str, t.partitions))}" for t in topics)


def _show(topics: list[Any]) -> str:
    return " ".join(
        f"{t.topic_id.decode().rstrip('.')}:{','.join(map(str, t.partitions))}"
        for t in sorted(topics, key=lambda t: bytes(t.topic_id))
    )


def _shown(pending: Any) -> str:
    shown = pending.error.name if pending.error else _shown_response(pending.response)
    return f"{pending.name}: {shown}"


def _shown_response(response: Any) -> str:
    code = ErrorCode(response.error_code).name if getattr(response, "error_code", 0) else "ok"
    match response:
        case ConsumerGroupHeartbeatResponse(error_code=0):
            given = response.assignment
            assigned = "" if given is None else f" assigned [{_show(given.topic_partitions)}]"
            return f"epoch={response.member_epoch}{assigned}"
        case DescribedConsumerGroup(error_code=0):
            members = " ".join(
                f"{m.member_id}@{m.member_epoch}=[{_show(m.assignment.topic_partitions)}]"
                f"->[{_show(m.target_assignment.topic_partitions)}]{'' if m.member_type else ' (classic)'}"
                for m in response.members
            )
            return (
                f"{response.group_state} epoch={response.group_epoch} assignment={response.assignment_epoch} "
                f"{response.assignor_name} {members}".rstrip()
            )
        case ListGroupsResponse():
            return " ".join(f"{g.group_id}/{g.group_type}/{g.group_state}" for g in response.groups)
        case JoinGroupResponse(error_code=0):
            members = ",".join(m.member_id for m in response.members)
            skip = " skip-assignment" if response.skip_assignment else ""
            return (
                f"joined {response.member_id} generation={response.generation_id} "
                f"protocol={response.protocol_name} leader={response.leader} members=[{members}]{skip}"
            )
        case JoinGroupResponse():
            return f"{code} {response.member_id}".rstrip()
        case SyncGroupResponse(error_code=0):
            return f"assigned [{_readable(response.assignment)}]"
        case LeaveGroupResponse():
            return " ".join(
                f"{m.member_id or m.group_instance_id}:{ErrorCode(m.error_code).name}"
                for m in response.members
            )
        case OffsetCommitResponse():
            return " ".join(ErrorCode(p.error_code).name for t in response.topics for p in t.partitions)
        case OffsetFetchResponseGroup():
            (partition,) = response.topics[0].partitions
            return f"{partition.committed_offset} {partition.metadata!r}"
        case DescribedGroup(error_code=0):
            members = " ".join(f"{m.member_id}=[{_readable(m.member_assignment)}]" for m in response.members)
            return f"{response.group_state} protocol={response.protocol_data!r} {members}".rstrip()
    return code


def run_script(text: str) -> str:
    """The scenario with the actual responses in place of the expected ones."""
    script = Script()
    written: list[str] = []
    expected = False
    for line in text.splitlines():
        if line == "----":
            expected = True
        elif not line:
            expected = False
            written.append("")
        elif not expected:
            written.append(line)
            if not line.startswith("#"):
                responses = script.run(line)
                written += ["----", *responses] if responses else []
    return "\n".join(written).rstrip("\n") + "\n"
