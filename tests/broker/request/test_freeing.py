"""Large messages are freed in portions, once nothing else uses them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from penstock.broker.request.freeing import Freeing
from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse, MetadataResponseTopic
from penstock.wire.portions import PORTION
from tests.broker.large_topics import topic_image
from tests.broker.nodes import eventually as until
from tests.broker.raw import RawClient
from tests.broker.stalls import LIMIT_S, assert_brief
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
