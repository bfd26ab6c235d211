"""Large messages are freed in portions, once nothing else uses them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from penstock.broker.request.freeing import Freeing
from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.wire.apis.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from penstock.wire.portions import PORTION
from tests.broker.large_topics import topic_image
from tests.broker.nodes import eventually as until
from tests.broker.raw import RawClient
from tests.broker.stalls import LIMIT_S, assert_brief
from tests.hostile.clients import frame_of
from tests.waiting import eventually

_MANY = 20_000
#: with a leader, a replica and an in-sync replica each
_PARTITIONS = 100_000


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config={"auto.create.topics.enable": "false"}) as found:
        yield found


def _message() -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(name=f"t-{i}") for i in range(_MANY)])


def _alive() -> int:
    return sum(isinstance(each, MetadataResponseTopic) for each in gc.get_objects())


def test_each_iteration_frees_a_portion() -> None:
    async def main() -> list[int]:
        freeing, before = Freeing(), _alive()
        freeing.add(_message())
        numbers = [_MANY]
        while not freeing.is_idle:
            await asyncio.sleep(0)
            numbers.append(_alive() - before)
        return numbers

    gc.disable()
    try:
        numbers = asyncio.run(main())
    finally:
        gc.enable()
    assert numbers[-1] == 0
    freed = [some - less for some, less in pairwise(numbers)]
    assert min(freed) >= 0 and max(freed) < 2 * PORTION


def test_a_dictionary_of_elements_is_emptied_in_portions() -> None:
    async def main() -> list[int]:
        freeing, known = Freeing(), {(i,): i for i in range(_MANY)}
        freeing.add(known)
        sizes = [_MANY]
        while not freeing.is_idle:
            await asyncio.sleep(0)
            sizes.append(len(known))
        return sizes

    sizes = asyncio.run(main())
    assert sizes[-1] == 0
    assert max(some - less for some, less in pairwise(sizes)) <= PORTION


def test_a_message_of_a_few_objects_does_not_wait() -> None:
    """It may have the bytes of its frame, which are no longer counted."""

    async def main() -> None:
        freeing, message = Freeing(), MetadataResponse(cluster_id="c")
        freeing.add(message)
        for _ in range(10):
            await asyncio.sleep(0)
        assert freeing.is_idle

    asyncio.run(main())


def test_a_message_in_use_is_freed_later() -> None:
    async def main() -> None:
        freeing, message, before = Freeing(), _message(), _alive()
        freeing.add(message)
        freeing.add(_message())
        for _ in range(100):
            await asyncio.sleep(0)
        assert _alive() - before == _MANY
        assert message.topics[-1].error_code == ErrorCode.NONE
        del message
        await until(lambda: freeing.is_idle)
        assert _alive() - before == -_MANY

    asyncio.run(main())


def test_a_large_response_does_not_hold_the_loop_when_it_is_freed(running: BrokerThread) -> None:
    """It took 45 ns for each element."""
    image = topic_image("large", _PARTITIONS)
    running.broker.stages.cluster.image.topics[image.name] = image
    freeing = running.broker.serving.dispatcher.large.freeing
    with RawClient(running.bootstrap) as client:

        def call() -> None:
            (topic,) = client.call(METADATA, 12, MetadataRequest(topics=None)).topics
            assert len(topic.partitions) == _PARTITIONS

        assert_brief(running, call, LIMIT_S / 2)
    eventually(lambda: freeing.is_idle)


def _unknown_topics(client: RawClient) -> None:
    names = [MetadataRequestTopic(name=f"{i:x}") for i in range(_PARTITIONS)]
    assert len(client.call(METADATA, 12, MetadataRequest(topics=names)).topics) == _PARTITIONS


def _empty_subtopologies(client: RawClient) -> None:
    topology = Topology(subtopologies=[Subtopology(subtopology_id="s") for _ in range(20_000)])
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", topology=topology)
    assert client.call(STREAMS_GROUP_HEARTBEAT, 0, request).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def _damaged_at_its_end(client: RawClient) -> None:
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition() for _ in range(500_000)])]
    frame = frame_of(LIST_OFFSETS, 6, ListOffsetsRequest(topics=topics))[4:-10]
    client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    assert client.socket.recv(4) == b""


@pytest.mark.parametrize("send", [_unknown_topics, _empty_subtopologies, _damaged_at_its_end])
def test_a_large_request_does_not_hold_the_loop_when_it_is_freed(
    running: BrokerThread, send: Callable[[RawClient], None]
) -> None:
    """With all it was compared with: 110 ms for 250,000 names, 24 ms for 20,000 empty subtopologies."""
    freeing = running.broker.serving.dispatcher.large.freeing

    def call() -> None:
        with RawClient(running.bootstrap) as client:
            send(client)
        eventually(lambda: freeing.is_idle)

    assert_brief(running, call)
