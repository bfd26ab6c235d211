"""Operations of a seed: the same ones every time, of the requested kinds and versions."""

from __future__ import annotations

from collections.abc import Iterable

from differential.generator import KINDS, generate
from differential.operations import Operation
from penstock.wire.apis import APIS
from penstock.wire.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.wire.messages import encode_request

VERSIONS = {key: (api.min_supported, api.max_version) for key, api in APIS.items()}


def test_a_seed_yields_the_same_operations() -> None:
    first, again, other = (generate(seed, 200, VERSIONS) for seed in (1, 1, 2))
    assert [str(operation) for operation in first] == [str(operation) for operation in again]
    assert [str(operation) for operation in first] != [str(operation) for operation in other]


def test_every_operation_can_be_sent() -> None:
    for operation in generate(3, 600, VERSIONS):
        low, high = VERSIONS[operation.api.key]
        assert low <= operation.version <= high
        assert encode_request(operation.api, operation.version, 1, "test", operation.request)


def test_all_kinds_are_made() -> None:
    made = generate(4, 1000, VERSIONS)
    assert {operation.kind for operation in made} == set(KINDS)
    assert any(operation.mangle is not None for operation in made)


def test_only_the_chosen_kinds_follow_the_first_topics() -> None:
    made = generate(5, 100, VERSIONS, only=["fetch"])
    assert {operation.kind for operation in made} == {"topics", "fetch"}
    assert {operation.kind for operation in made[-100:]} == {"fetch"}


def members_at_once(operations: Iterable[Operation]) -> int:
    """The most members of one streams group, of those that have joined and not left."""
    groups: dict[str, set[str]] = {}
    most = 0
    for operation in operations:
        request = operation.request
        if not isinstance(request, StreamsGroupHeartbeatRequest) or operation.member is None:
            continue
        members = groups.setdefault(request.group_id, set())
        if request.member_epoch == 0:
            members.add(operation.member)
        elif request.member_epoch == -1 and request.member_id == operation.member:
            members.discard(operation.member)
        most = max(most, len(members))
    return most


def test_streams_groups_have_several_members_while_topics_stay_the_same() -> None:
    """Which of several equal members gets a task is not defined, and a new partition would be such a task."""
    assert members_at_once(generate(300, 300, VERSIONS, only=["streams"])) > 1
    assert members_at_once(generate(300, 300, VERSIONS, only=["streams", "topics"])) == 1
