"""The controller: decide, append, commit, apply."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from penstock.broker.node.controller import NotController
from penstock.model.errors import ErrorCode
from penstock.wire.schema import Struct
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.topics import create


async def follower(nodes: Cluster) -> int:
    controller = await nodes.settled()
    return next(node for node in nodes.brokers if node != controller.node_id)


def test_a_controller_whose_disk_hangs_leaves_it_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads the quorum all the same: others' disks are a majority, and it answers their fetches."""

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            node, goes_on = await follower(nodes), asyncio.Event()
            loader = controller.node.loader
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
            await eventually(lambda: "another" in controller.image.topics)

    run(main())


def test_a_change_that_is_given_up_leaves_no_error_that_nobody_takes() -> None:
    """The loop of a controller that loses leadership is cancelled at once (seed 24114 of three brokers)."""

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = (await nodes.settled()).controller
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
