"""Small requests whose change of the metadata is large: they held the loop for 47 to 190 ms, or 380 ms.

The change is one batch of the metadata log. It is decided, encoded and applied in slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tests.hostile.clients import Client, Kind, frame_of, prepare
from tests.hostile.meter import Meter
from tests.hostile.target import SECURED, Target, target

pytestmark = [pytest.mark.process, pytest.mark.slow]
#: the most partitions that a request may create
_PARTITIONS = 10_000
#: the most bindings that a request may create or delete
_BINDINGS = 10_000
_READINGS = 4
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Target]:
    with target() as running:
        prepare(running)
        yield running


@pytest.fixture
def meter(broker: Target) -> Iterator[Meter]:
    with closing(Meter(broker)) as found:
        yield found


def _creation(name: str, partitions: int = _PARTITIONS) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def _deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)


def _new_name() -> str:
    return f"large-{next(_numbers)}"


def _partitions(client: Client, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = client.call(METADATA, request).topics
    return len(topic.partitions)


def test_a_topic_with_many_partitions_is_created_and_deleted_in_slices(meter: Meter) -> None:
    """Creation took 95 to 190 ms in one step, deletion 57 ms."""
    client = meter.client(Kind.OPEN)
    for _ in range(_READINGS):
        name = _new_name()
        created = meter.read(Kind.OPEN, frame_of(CREATE_TOPICS, 7, _creation(name)))
        assert _partitions(client, name) == _PARTITIONS
        deleted = meter.read(Kind.OPEN, frame_of(DELETE_TOPICS, 6, _deletion(name)))
        assert _partitions(client, name) == 0
        if not created.exceeds(meter.limits) and not deleted.exceeds(meter.limits):
            return
    pytest.fail(f"created: {created}; deleted: {deleted}")


def test_a_topic_gets_many_partitions_in_slices(meter: Meter) -> None:
    client, names = meter.client(Kind.OPEN), list[str]()

    def growth(name: str) -> bytes:
        topic = CreatePartitionsTopic(name=name, count=_PARTITIONS, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=60_000)
        return frame_of(CREATE_PARTITIONS, 3, request)

    def next_growth() -> bytes:
        names.append(_new_name())
        client.call(CREATE_TOPICS, _creation(names[-1], 1))
        return growth(names[-1])

    grown = meter.within_limits(Kind.OPEN, next_growth)
    assert {_partitions(client, name) for name in names} == {_PARTITIONS}
    for name in names:
        client.call(DELETE_TOPICS, _deletion(name))
    assert not grown.exceeds(meter.limits), grown


def test_a_config_of_brokers_is_applied_to_many_partitions_in_slices(meter: Meter) -> None:
    """20,000 partitions took 40 ms."""
    client, names, hours = meter.client(Kind.OPEN), [_new_name() for _ in range(2)], count(100)
    for name in names:
        client.call(CREATE_TOPICS, _creation(name))

    def alteration() -> bytes:
        retention = AlterableConfig(name="log.retention.ms", config_operation=0, value=f"{next(hours)}000000")
        brokers = AlterConfigsResource(resource_type=4, resource_name="", configs=[retention])
        return frame_of(INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[brokers]))

    reading = meter.within_limits(Kind.OPEN, alteration)
    for name in names:
        client.call(DELETE_TOPICS, _deletion(name))
    assert not reading.exceeds(meter.limits), reading


def test_a_topic_is_never_visible_with_some_of_its_partitions(broker: Target) -> None:
    name, seen = _new_name(), set[int]()
    with Client(broker, Kind.OPEN) as creator, Client(broker, Kind.OPEN) as reader:
        creator.send(frame_of(CREATE_TOPICS, 7, _creation(name)))
        while _PARTITIONS not in seen:
            seen.add(_partitions(reader, name))
        creator.receive()
        creator.call(DELETE_TOPICS, _deletion(name))
    assert seen == {0, _PARTITIONS}


def _binding(number: int) -> AclCreation:
    return AclCreation(
        resource_type=2,
        resource_name="shared",
        resource_pattern_type=4,
        principal=f"User:{number}",
        host="*",
        operation=3,
        permission_type=3,
    )


def _denied_names() -> bytes:
    """Names that no decision is known of yet."""
    salt = next(_numbers)
    topics = [MetadataRequestTopic(name=f"shared-{salt}-{number}") for number in range(100)]
    return frame_of(METADATA, 12, MetadataRequest(topics=topics, allow_auto_topic_creation=False))


@pytest.fixture(scope="module")
def secured() -> Iterator[Target]:
    with target(SECURED) as running:
        prepare(running)
        yield running


def test_many_bindings_of_one_name_are_checked_and_deleted_in_slices(secured: Target) -> None:
    """A check compared all bindings of a name. 10,000 bindings took 112 ms to delete."""
    wanted = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter="shared",
        pattern_type_filter=4,
        operation=1,
        permission_type=1,
    )
    all_of_them = DeleteAclsRequest(filters=[wanted])
    deletion = frame_of(DELETE_ACLS, 3, all_of_them)
    creation = CreateAclsRequest(creations=[_binding(number) for number in range(_BINDINGS)])
    with closing(Meter(secured)) as meter:
        client = meter.client(Kind.SUPER)
        for _ in range(_READINGS):
            created = client.call(CREATE_ACLS, creation)
            assert not any(result.error_code for result in created.results)
            checked = meter.least_of(Kind.DENIED, _denied_names)
            deleted = meter.read(Kind.SUPER, deletion)
            # More than 100 ms when each of the 100 checks compared 10,000 bindings.
            is_cheap = checked.total_ms < 20 * meter.limits.scale
            if is_cheap and deleted.step_ms < meter.limits.step_ms:
                break
        else:
            pytest.fail(f"checked: {checked}; deleted: {deleted}")
        (left,) = client.call(DELETE_ACLS, all_of_them).filter_results
        assert not left.matching_acls
