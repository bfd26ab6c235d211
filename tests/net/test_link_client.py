"""What clients of links ask the cluster for, against a port that answers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.model.config.mirrored_topics import LINK_CONFIG, MirroredTopic, MirrorState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.net.link_client import look
from penstock.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse
from penstock.wire.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Port:
    """A cluster of one broker with mirrored topics `t0` to `t299`, and what it is asked."""

    def __init__(self) -> None:
        self.topics = {f"t{n}" for n in range(300)}
        self.described: list[str] = []

    async def send(self, api: object, request: Any, *, changes: bool = False) -> Any:
        if isinstance(request, MetadataRequest):
            names = self.topics if request.topics is None else [each.name for each in request.topics]
            topics = [
                MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition(partition_index=0)])
                if name in self.topics
                else MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for name in names
            ]
            return MetadataResponse(brokers=[MetadataResponseBroker(host="a", port=1)], topics=topics)
        assert isinstance(request, DescribeConfigsRequest)
        self.described += [each.resource_name for each in request.resources]
        text = str(MirroredTopic("west", MirrorState.MIRRORING, TopicId(bytes(16)), "t"))
        value = DescribeConfigsResourceResult(name=LINK_CONFIG, value=text)
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_name=each.resource_name, configs=[value])
                for each in request.resources
            ]
        )

    async def send_each(self, addresses: Iterable[str], api: object, request: Any) -> dict[str, Any]:
        return dict.fromkeys(addresses, DescribeLogDirsResponse())

    def check(self, code: int, message: str | None, about: str) -> None:
        assert not code, about


def test_a_poll_asks_for_its_topics_only() -> None:
    """A promotion of one topic looks five times a second, also in a cluster of 100,000 topics."""
    port = Port()
    view = asyncio.run(look(port, "west", ["t7", "t9"]))
    assert (list(view.topics), port.described) == (["t7", "t9"], ["t7", "t9"])
    assert asyncio.run(look(port, "west", ())).mirrors == []
    assert len(asyncio.run(look(port, "west")).topics) == 300


def test_a_poll_leaves_out_a_topic_that_was_deleted_meanwhile() -> None:
    view = asyncio.run(look(Port(), "west", ["t7", "gone"]))
    assert list(view.topics) == ["t7"]
