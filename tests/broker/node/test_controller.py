"""The controller: decide, append, commit, apply."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from penstock.broker.node.controller import Controller, NotController
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import Defaults, NewTopic, create_topic
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.model.steps import SLICE, Steps
from penstock.wire.schema import Struct
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.topics import create

_PARTITIONS = 8 * SLICE


async def follower(nodes: Cluster) -> int:
    controller = await nodes.settled()
    return next(node for node in nodes.brokers if node != controller.stages.config.node_id)


def test_a_controller_whose_disk_hangs_leaves_it_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads the quorum all the same: others' disks are a majority, and it answers their fetches."""

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            node, goes_on = await follower(nodes), asyncio.Event()
            loader = controller.stages.cluster.node.loader
            follow = loader.on_applied

            async def hang(records: Sequence[Struct]) -> None:
                await goes_on.wait()
                await follow(records)

            loader.on_applied = hang
            with monkeypatch.context() as impatient:
                impatient.setattr("penstock.broker.node.controller._STUCK_S", 0.2)
                answer = await create(nodes, node, "topic")
            assert answer in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            assert await nodes.settled() is not controller
            assert await create(nodes, node, "another") == ErrorCode.NONE
            goes_on.set()
            await eventually(lambda: "another" in controller.stages.cluster.image.topics)

    run(main())


def test_an_abandoned_change_leaves_no_unretrieved_exception() -> None:
    """The loop of a controller that loses leadership is cancelled at once (seed 24114 of three brokers)."""

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = (await nodes.settled()).stages.cluster.node.controller
            problems: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            changing = asyncio.create_task(controller._wait_until_applied(controller.next_offset + 5))
            await asyncio.sleep(0)
            controller.failed(NotController("leadership was lost"))
            changing.cancel()
            await asyncio.wait([changing])
            del changing
            controller._loader._waiting.clear()
            gc.collect()
            assert not problems

    run(main())


def test_a_large_change_is_one_batch_that_is_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a whole batch is committed: no crash leaves a topic with some of its partitions."""

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            appended: list[int] = []
            append = Controller._append

            def counted(self: Controller, batch: bytearray, count: int) -> int:
                appended.append(count)
                return append(self, batch, count)

            monkeypatch.setattr(Controller, "_append", counted)
            seen: dict[int, None] = {}
            creating = asyncio.create_task(
                controller.stages.cluster.node.controller.change(
                    lambda: _topic(controller.stages.cluster.image, _PARTITIONS)
                )
            )
            while not creating.done():
                for broker in nodes.brokers.values():
                    topic = broker.stages.cluster.image.topics.get("large")
                    seen[0 if topic is None else len(topic.partitions)] = None
                await asyncio.sleep(0)
            await creating
            assert appended == [_PARTITIONS + 1]
            assert list(seen) == [0, _PARTITIONS]
            await eventually(
                lambda: all(
                    "large" in broker.stages.cluster.image.topics for broker in nodes.brokers.values()
                )
            )

    run(main())


def _topic(image: ClusterImage, partitions: int) -> Steps[tuple[Sequence[Struct], None]]:
    wanted = NewTopic("large", partitions, 1)
    return (yield from create_topic(image, wanted, Defaults(1, 1), lambda: TopicId(b"l" * 16))), None


def test_a_large_change_ends_with_leadership() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            begun = asyncio.Event()

            def decide() -> Steps[tuple[Sequence[Struct], None]]:
                while True:
                    begun.set()
                    yield

            changing = asyncio.create_task(controller.stages.cluster.node.controller.change(decide))
            await begun.wait()
            await controller.stages.cluster.node.quorum.resign(0)
            with pytest.raises(NotController):
                await changing

    run(main())
