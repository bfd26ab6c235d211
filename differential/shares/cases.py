"""The table: what is wrong with a request. An outcome is the errors of the last answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from differential.shares.scene import Ack, Scene, shown
from differential.shares.state_cases import STATE_CASES
from penstock.model.errors import ErrorCode
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import consumer_group_heartbeat as consumer
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis import describe_share_group_offsets as describe
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
from penstock.wire.schema import Struct

__all__ = ["SESSIONS_MAX", "SETTINGS", "SIZE_MAX", "Case", "cases"]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
SESSIONS_MAX: Final = 12
SIZE_MAX: Final = 10
#: broker configs of both brokers
SETTINGS: Final = {
    "group.share.max.share.sessions": str(SESSIONS_MAX),
    "group.share.max.size": str(SIZE_MAX),
    "group.share.assignment.interval.ms": "0",
}
_UNKNOWN_ID: Final = bytes(15) + b"\x07"
_LONG: Final = "m" * 37
_NOBODY: Final = "nobody"


class Case(NamedTuple):
    api: str
    wrong: str
    #: returns the outcome
    run: Callable[[Scene], str]

    @property
    def name(self) -> str:
        return f"{self.api}: {self.wrong}"

    @property
    def is_alone(self) -> bool:
        """Returns true if the case uses up what cases share."""
        return self.run is _too_many_sessions


def cases() -> list[Case]:
    tables = {
        "ShareGroupHeartbeat": _HEARTBEATS,
        "ShareFetch": {**_FETCHES, **_FETCH_ACKNOWLEDGEMENTS},
        "ShareAcknowledge": {**_ACKNOWLEDGES, **_ACKNOWLEDGEMENTS},
        "state": STATE_CASES,
        "administration": _ADMINISTRATION,
    }
    return [Case(api, wrong, run) for api, table in tables.items() for wrong, run in table.items()]


# -- ShareGroupHeartbeat


def _beat(**changes: Any) -> Callable[[Scene], str]:
    return lambda scene: shown(scene.create().heartbeat(**changes))


def _beat_joined(**changes: Any) -> Callable[[Scene], str]:
    return lambda scene: shown(scene.create().join().heartbeat(**changes))


def _too_many_members(scene: Scene) -> str:
    scene.create().join()
    for number in range(1, SIZE_MAX):
        assert shown(scene.heartbeat(member_id=f"m{number}")) == "NONE"
    return shown(scene.heartbeat(member_id="one more"))


def _group_of_another_type(scene: Scene) -> str:
    scene.create().join("other")
    scene.group = f"{scene.group}-consumers"
    request = consumer.ConsumerGroupHeartbeatRequest(
        group_id=scene.group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[scene.topic],
        topic_partitions=[],
    )
    assert shown(scene.call(consumer.CONSUMER_GROUP_HEARTBEAT, request, 1)) == "NONE"
    return shown(scene.heartbeat())


_HEARTBEATS: Final[dict[str, Callable[[Scene], str]]] = {
    "an empty group": _beat(group_id=""),
    "a blank group": _beat(group_id=" "),
    "an empty member id": _beat(member_id=""),
    "a blank member id": _beat(member_id=" "),
    "a member id of 37 characters": _beat(member_id=_LONG),
    "an empty rack": _beat(rack_id=""),
    "no topics when joining": _beat(subscribed_topic_names=None),
    "an empty list of topics when joining": _beat(subscribed_topic_names=[]),
    "a topic that does not exist": _beat(subscribed_topic_names=["nowhere"]),
    "an epoch of -2": _beat(member_epoch=-2),
    "an epoch of a group that does not exist": _beat(member_epoch=1),
    "leaving a group that does not exist": _beat(member_epoch=-1),
    "an epoch of a member that does not exist": _beat_joined(member_id="stranger", member_epoch=1),
    "leaving without having joined": _beat_joined(member_id="stranger", member_epoch=-1),
    "an epoch ahead": _beat_joined(member_epoch=99),
    "an epoch of -3": _beat_joined(member_epoch=-3),
    "joining again": _beat_joined(member_epoch=0),
    "more members than allowed": _too_many_members,
    "a group of another type": _group_of_another_type,
}

# -- ShareFetch


def _fetch(**changes: Any) -> Callable[[Scene], str]:
    return lambda scene: shown(scene.create().join().fetch(**changes))


def _fetch_in_session(*acks: Ack, **changes: Any) -> Callable[[Scene], str]:
    return lambda scene: shown(scene.hold().fetch(*acks, **changes))


def _too_many_sessions(scene: Scene) -> str:
    scene.create().join()
    answers = [
        shown(scene.fetch(member_id=f"m{n}", share_session_epoch=0, max_wait_ms=1, line=scene.connect()))
        for n in range(SESSIONS_MAX + 1)
    ]
    return answers[-1]


def _renewal(**changes: Any) -> Callable[[Scene], str]:
    limits = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0, **changes}
    return _fetch_in_session((0, 0, [RENEW]), is_renew_ack=True, **limits)


def _closed_session(scene: Scene) -> str:
    scene.hold()
    assert shown(scene.acknowledge(share_session_epoch=-1, topics=[])) == "NONE"
    return shown(scene.fetch(share_session_epoch=5))


def _epoch_again(scene: Scene) -> str:
    scene.hold()
    assert shown(scene.acknowledge()) == "NONE"
    return shown(scene.fetch(share_session_epoch=scene.epoch - 1))


_FETCHES: Final[dict[str, Callable[[Scene], str]]] = {
    "no group": _fetch(group_id=None),
    "an empty group": _fetch(group_id=""),
    "no member id": _fetch(member_id=None),
    "an empty member id": _fetch(member_id=""),
    "a member id of 37 characters": _fetch(member_id=_LONG),
    "an epoch without a session": _fetch(share_session_epoch=5),
    "closing without a session": _fetch(share_session_epoch=-1),
    "an epoch of -2": _fetch(share_session_epoch=-2),
    "acknowledgements with the first request": lambda scene: shown(scene.create().join().fetch((0, 0, [1]))),
    "more sessions than allowed": _too_many_sessions,
    "an unknown topic id": lambda scene: shown(scene.create().join().fetch(topics=[(_UNKNOWN_ID, [0])])),
    "a topic id of zeros": lambda scene: shown(scene.create().join().fetch(topics=[(bytes(16), [0])])),
    "an unknown partition": lambda scene: shown(scene.create().join().fetch(topics=[(scene.topic_id, [9])])),
    "a negative partition": lambda scene: shown(scene.create().join().fetch(topics=[(scene.topic_id, [-1])])),
    "no partitions": lambda scene: shown(scene.create().join().fetch(topics=[])),
    "an epoch that was used": _epoch_again,
    "an epoch ahead": _fetch_in_session(share_session_epoch=99),
    "a session that was closed": _closed_session,
    "another member": _fetch_in_session(member_id="stranger", share_session_epoch=2),
    "no records wanted": _fetch_in_session(max_records=0),
    "a negative number of records": _fetch_in_session(max_records=-1),
    "negative bytes": _fetch_in_session(max_bytes=-1),
    "negative least bytes": _fetch_in_session(min_bytes=-1),
    "a negative wait": _fetch_in_session(max_wait_ms=-1),
    "a negative batch size": _fetch_in_session(batch_size=-1),
    "an unknown acquire mode": _fetch_in_session(share_acquire_mode=7),
    "a renewal that fetches bytes": _renewal(max_bytes=1),
    "a renewal that waits for bytes": _renewal(min_bytes=1),
    "a renewal that fetches records": _renewal(max_records=1),
    "a renewal that waits": _renewal(max_wait_ms=1),
    "a renewal": _renewal(),
    "a renewal without acknowledgements": lambda scene: shown(
        scene.hold().fetch(is_renew_ack=True, max_bytes=0, min_bytes=0, max_records=0, max_wait_ms=0)
    ),
}

# -- acknowledgements, in ShareFetch and in ShareAcknowledge

_WRONG: Final[dict[str, tuple[Ack, ...]]] = {
    "a range that ends before it begins": ((2, 1, [ACCEPT]),),
    "a negative offset": ((-1, 0, [ACCEPT]),),
    "no types": ((0, 1, []),),
    "too few types": ((0, 2, [ACCEPT, ACCEPT]),),
    "too many types": ((0, 1, [ACCEPT, ACCEPT, ACCEPT]),),
    "an unknown type": ((0, 0, [7]),),
    "a negative type": ((0, 0, [-1]),),
    "ranges out of order": ((2, 2, [ACCEPT]), (0, 0, [ACCEPT])),
    "overlapping ranges": ((0, 1, [ACCEPT]), (1, 2, [ACCEPT])),
    "the same range twice": ((0, 0, [ACCEPT]), (0, 0, [ACCEPT])),
    "offsets behind the log": ((100, 100, [ACCEPT]),),
    "a range that ends behind the log": ((0, 100, [ACCEPT]),),
    "a renewal that is not declared": ((0, 0, [RENEW]),),
    "all types": ((0, 2, [ACCEPT, RELEASE, REJECT]),),
    "gaps": ((0, 2, [GAP]),),
}


def _then(*acks: Ack, send: str, before: Ack | None = None, **changes: Any) -> Callable[[Scene], str]:
    """Send acknowledgements for acquired records, without fetching more."""

    def run(scene: Scene) -> str:
        scene.hold()
        if before is not None:
            assert shown(scene.acknowledge(before)) == "NONE"
        if send == "ShareFetch":
            return shown(scene.fetch(*acks, max_records=0, max_wait_ms=0, **changes))
        return shown(scene.acknowledge(*acks, **changes))

    return run


def _by_another(send: str) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        scene.hold()
        line = scene.connect()
        scene.fetch(member_id="other", share_session_epoch=0, max_wait_ms=1, line=line)
        given: dict[str, Any] = {"member_id": "other", "share_session_epoch": 1, "line": line}
        if send == "ShareFetch":
            return shown(scene.fetch((0, 0, [ACCEPT]), max_records=0, max_wait_ms=0, **given))
        return shown(scene.acknowledge((0, 0, [ACCEPT]), **given))

    return run


def _of_another_place(send: str, topic_id: bytes | None, index: int) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        scene.hold()
        topics = [(scene.topic_id if topic_id is None else topic_id, [index])]
        if send == "ShareFetch":
            return shown(scene.fetch((0, 0, [ACCEPT]), topics=topics, max_records=0, max_wait_ms=0))
        return shown(scene.acknowledge((0, 0, [ACCEPT]), topics=topics))

    return run


def _acknowledgements(send: str) -> dict[str, Callable[[Scene], str]]:
    return {
        **{f"acknowledges {wrong}": _then(*acks, send=send) for wrong, acks in _WRONG.items()},
        "acknowledges with a renewal in version 1": _then((0, 0, [RENEW]), send=send, version=1),
        "acknowledges what is accepted already": _then((1, 1, [RELEASE]), send=send, before=(1, 1, [ACCEPT])),
        "acknowledges what the start offset has passed": _then(
            (0, 0, [RELEASE]), send=send, before=(0, 0, [ACCEPT])
        ),
        "acknowledges what was released": _then((1, 1, [ACCEPT]), send=send, before=(1, 1, [RELEASE])),
        "acknowledges what another member has": _by_another(send),
        "acknowledges in an unknown topic": _of_another_place(send, _UNKNOWN_ID, 0),
        "acknowledges in a topic with an id of zeros": _of_another_place(send, bytes(16), 0),
        "acknowledges in an unknown partition": _of_another_place(send, None, 9),
        "acknowledges in a negative partition": _of_another_place(send, None, -1),
    }


_FETCH_ACKNOWLEDGEMENTS: Final = _acknowledgements("ShareFetch")
_ACKNOWLEDGEMENTS: Final = _acknowledgements("ShareAcknowledge")

# -- ShareAcknowledge


def _acknowledge(**changes: Any) -> Callable[[Scene], str]:
    return lambda scene: shown(scene.create().join().acknowledge((0, 0, [ACCEPT]), **changes))


def _ack_in_session(*acks: Ack, **changes: Any) -> Callable[[Scene], str]:
    return lambda scene: shown(scene.hold().acknowledge(*acks, **changes))


def _closed_twice(scene: Scene) -> str:
    scene.hold()
    assert shown(scene.acknowledge(share_session_epoch=-1, topics=[])) == "NONE"
    return shown(scene.acknowledge(share_session_epoch=-1, topics=[]))


_ACKNOWLEDGES: Final[dict[str, Callable[[Scene], str]]] = {
    "no group": _acknowledge(group_id=None, share_session_epoch=1),
    "no member id": _acknowledge(member_id=None, share_session_epoch=1),
    "an empty member id": _acknowledge(member_id="", share_session_epoch=1),
    "a member id of 37 characters": _acknowledge(member_id=_LONG, share_session_epoch=1),
    "the epoch 0": _acknowledge(share_session_epoch=0),
    "an epoch without a session": _acknowledge(share_session_epoch=1),
    "closing without a session": _acknowledge(share_session_epoch=-1),
    "an epoch of -2": _acknowledge(share_session_epoch=-2),
    "the epoch 0 in a session": _ack_in_session((0, 0, [ACCEPT]), share_session_epoch=0),
    "an epoch ahead": _ack_in_session((0, 0, [ACCEPT]), share_session_epoch=99),
    "no acknowledgements": _ack_in_session(topics=[]),
    "no ranges": _ack_in_session(),
    "a renewal": _ack_in_session((0, 0, [RENEW]), is_renew_ack=True),
    "a renewal that is an acceptance": _ack_in_session((0, 0, [ACCEPT]), is_renew_ack=True),
    "closing with acknowledgements": _ack_in_session((0, 2, [ACCEPT]), share_session_epoch=-1),
    "closing twice": _closed_twice,
}

# -- administration


def _alter(scene: Scene, group: str, topic: str, partition: int = 0, offset: int = 0) -> str:
    wanted = alter.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
    listed = alter.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[wanted])
    request = alter.AlterShareGroupOffsetsRequest(group_id=group, topics=[listed])
    return shown(scene.call(alter.ALTER_SHARE_GROUP_OFFSETS, request))


def _altered(**changes: Any) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        _leave(scene)
        return _alter(scene, **_place(scene, changes))

    return run


def _place(scene: Scene, changes: dict[str, Any]) -> dict[str, Any]:
    """The group and topic of the scene, with changes. No other case has a group of the name `_NOBODY`."""
    given = {"group": scene.group, "topic": scene.topic, **changes}
    if given["group"] == _NOBODY:
        given["group"] = f"{scene.group}-{_NOBODY}"
    return given


def _leave(scene: Scene) -> None:
    scene.create().join()
    assert shown(scene.heartbeat(member_epoch=-1)) == "NONE"


def _forget(scene: Scene, group: str, topic: str) -> str:
    listed = delete.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
    request = delete.DeleteShareGroupOffsetsRequest(group_id=group, topics=[listed])
    return shown(scene.call(delete.DELETE_SHARE_GROUP_OFFSETS, request))


def _forgotten(*, leaves: bool = True, **changes: Any) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        if leaves:
            _leave(scene)
        else:
            scene.create().join()
        return _forget(scene, **_place(scene, changes))

    return run


def _described(group: str | None, topic: str | None, partition: int) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        scene.create().join()
        listed = describe.DescribeShareGroupOffsetsRequestTopic(
            topic_name=topic or scene.topic, partitions=[partition]
        )
        wanted = describe.DescribeShareGroupOffsetsRequestGroup(
            group_id=scene.group if group is None else group, topics=[listed]
        )
        request = describe.DescribeShareGroupOffsetsRequest(groups=[wanted])
        response = scene.call(describe.DESCRIBE_SHARE_GROUP_OFFSETS, request)
        if not isinstance(response, Struct):
            return str(response)
        (answer,) = response.groups  # type: ignore[attr-defined]
        places = [
            f"{p.start_offset} {ErrorCode(p.error_code).name}" for t in answer.topics for p in t.partitions
        ]
        return ", ".join([ErrorCode(answer.error_code).name, *places])

    return run


def _describe_groups(*groups: str) -> Callable[[Scene], str]:
    return lambda scene: shown(
        scene.call(SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(group_ids=list(groups)))
    )


def _delete_group(scene: Scene) -> str:
    scene.create().join()
    return shown(scene.call(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[scene.group])))


_ADMINISTRATION: Final[dict[str, Callable[[Scene], str]]] = {
    "altering offsets": _altered(),
    "altering offsets behind the log": _altered(offset=100),
    "altering offsets to a negative one": _altered(offset=-5),
    "altering offsets of a group that does not exist": _altered(group=_NOBODY),
    "altering offsets without a group": _altered(group=""),
    "altering offsets of a topic that does not exist": _altered(topic="nowhere"),
    "altering offsets of an unknown partition": _altered(partition=9),
    "altering offsets of a negative partition": _altered(partition=-1),
    "altering offsets of a group with members": lambda scene: _alter(
        scene.create().join(), scene.group, scene.topic
    ),
    "deleting offsets": _forgotten(),
    "deleting offsets of a group that does not exist": _forgotten(group=_NOBODY),
    "deleting offsets without a group": _forgotten(group=""),
    "deleting offsets of a topic that does not exist": _forgotten(topic="nowhere"),
    "deleting offsets of a group with members": _forgotten(leaves=False),
    "describing offsets of a group that does not exist": _described(_NOBODY, None, 0),
    "describing offsets of a topic that does not exist": _described(None, "nowhere", 0),
    "describing offsets of an unknown partition": _described(None, None, 9),
    "describing a group that does not exist": _describe_groups("nobody"),
    "describing a group without a name": _describe_groups(""),
    "deleting a group with members": _delete_group,
}
