"""A broker whose image differs from the others' is found, says so, and deletes nothing because of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.node import controller_loop, image_check
from penstock.broker.node.image_check import ImageCheck
from penstock.metadata import checksum
from penstock.metadata.checksum import image_checksum
from penstock.metadata.image import TOPIC as TOPIC_CONFIG
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.wire.apis.broker_heartbeat import ReportedChecksum
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import TOPIC, make_topic, produce
from tests.metadata.stage import Stage

ALL = (1, 2, 3)


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Errors that are logged; images are checked after a moment without changes."""
    monkeypatch.setattr(image_check, "_IDLE_S", 0.02)
    # Only a majority decides, however slow a node is.
    monkeypatch.setattr(checksum, "_REPORTS_MIN", 1 << 30)
    seen: list[tuple[str, dict[str, Any]]] = []
    for module in (controller_loop, image_check):
        monkeypatch.setattr(module.log, "error", lambda event, **fields: seen.append((event, fields)))
    return seen


@asynccontextmanager
async def three() -> AsyncIterator[Cluster]:
    nodes = Cluster(ALL, config={"broker.heartbeat.interval.ms": "20"})
    try:
        await nodes.start()
        yield nodes
    finally:
        await nodes.close()


def checked_at(nodes: Cluster, node: int) -> int:
    latest = nodes[node].stages.cluster.node.image_check.latest
    return -1 if latest is None else latest.end_offset


async def settled(nodes: Cluster) -> None:
    """Return when all nodes have a checksum of the same metadata."""
    end = max(broker.stages.cluster.node.loader.applied for broker in nodes.brokers.values())
    await eventually(lambda: all(checked_at(nodes, node) >= end for node in ALL))


def test_images_that_are_the_same_agree(errors: list[tuple[str, dict[str, Any]]]) -> None:
    async def main() -> None:
        async with three() as nodes:
            await make_topic(nodes, *ALL)
            await settled(nodes)
            latest = {nodes[node].stages.cluster.node.image_check.latest for node in ALL}
            assert len(latest) == 1
            await asyncio.gather(*(nodes[node].stages.cluster.node.image_check.stop() for node in ALL))
            assert latest == {
                image_checksum(nodes[1].stages.cluster.image, nodes[1].stages.cluster.node.loader.applied)
            }

    run(main())
    assert errors == []


@pytest.mark.parametrize("controls", [True, False])
def test_a_difference_is_logged_and_deletes_nothing(
    errors: list[tuple[str, dict[str, Any]]], controls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with three() as nodes:
            controller = (await nodes.settled()).stages.config.node_id
            wrong = controller if controls else next(node for node in ALL if node != controller)
            await make_topic(nodes, *ALL)
            assert (await produce(nodes, 1, b"kept")).error_code == ErrorCode.NONE
            nodes[wrong].stages.cluster.image.configs[TOPIC_CONFIG, TOPIC]["retention.ms"] = "1"
            await make_topic(nodes, *ALL, name="another")

            check = nodes[wrong].stages.cluster.node.image_check
            await eventually(lambda: check.diverged is not None)
            assert not [
                node for node in ALL if node != wrong and nodes[node].stages.cluster.node.image_check.diverged
            ]
            found = dict(errors)
            assert found["broker_metadata_diverged"]["broker"] == wrong
            fields = ("end_offset", "checksum", "expected")
            assert len({tuple(found[event][field] for field in fields) for event in found}) == 1
            described = await nodes.call(wrong, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None))
            assert "differs" in described.metadata_diverged

            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=60_000)
            (result,) = (await nodes.call(controller, DELETE_TOPICS, request)).responses
            assert result.error_code == ErrorCode.NONE
            home = nodes[wrong].stages.storage.partitions.directories[0]
            await eventually(lambda: [entry.topic for entry in home.quarantine.entries()] == [TOPIC])
            healthy = next(node for node in ALL if node != wrong)
            assert nodes[healthy].stages.storage.partitions.directories[0].quarantine.entries() == []

            agreed: list[int] = []
            monkeypatch.setattr(
                controller_loop.log,
                "info",
                lambda event, **fields: (
                    agreed.append(fields["broker"]) if event == "broker_metadata_agrees" else None
                ),
            )
            nodes[wrong].stages.cluster.image.configs.pop((TOPIC_CONFIG, TOPIC), None)
            await make_topic(nodes, *ALL, name="third")
            await eventually(lambda: check.diverged is None)
            assert agreed == [wrong]

    run(main())


class Loader:
    """Stands for what applies records."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.applied = image.offset + 1


def test_a_sum_that_is_overtaken_is_abandoned() -> None:
    async def main() -> None:
        stage = Stage(3)
        stage.topic("t", *[[1, 2, 3]] * 200)
        loader = Loader(stage.image)
        check = ImageCheck(loader)  # type: ignore[arg-type]
        computing = asyncio.create_task(check._compute(loader.applied))
        await asyncio.sleep(0)
        stage.topic("another", [1, 2, 3])
        await computing
        assert check.latest is None
        assert check.report() is None

        # The image is ahead of the offset that all nodes have applied.
        await check._compute(loader.applied)
        assert check.latest is None

        loader.applied = stage.image.offset + 1
        await check._compute(loader.applied)
        assert check.latest == image_checksum(stage.image, loader.applied)

    asyncio.run(main())


def test_a_response_to_an_earlier_report_is_ignored() -> None:
    check = ImageCheck(Loader(ClusterImage()))  # type: ignore[arg-type]
    for sent, expected in (
        (None, ReportedChecksum(end_offset=3, checksum=1)),
        (ReportedChecksum(end_offset=4, checksum=2), ReportedChecksum(end_offset=3, checksum=1)),
        (ReportedChecksum(end_offset=4, checksum=2), None),
    ):
        check.compared(sent, expected)
    assert check.diverged is None
