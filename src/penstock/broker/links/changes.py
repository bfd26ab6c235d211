"""Changes of the metadata that a link makes: topics, partitions, and configs, on the active controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from penstock.broker.node.controller import Controller
from penstock.metadata.configs import check_change, config_records
from penstock.metadata.image import LINK, TOPIC, ClusterImage
from penstock.metadata.topics import NewTopic, grow_topic
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import Steps
from penstock.ports import Clock
from penstock.wire.api import Api
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.schema import Struct

__all__ = ["Forward", "LinkChanges"]

_SET, _DELETE = 0, 1
_TIMEOUT_MS: Final = 30_000


#: sends a request of this broker to the active controller; the function answers it if that is this node
Forward: TypeAlias = Callable[[Api[Any, Any], Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]


class LinkChanges:
    """The changes of all links, as this broker asks for them. Errors are ApiErrors."""

    def __init__(
        self,
        image: ClusterImage,
        controller: Controller,
        clock: Clock,
        forward: Forward,
        create: Callable[[NewTopic], Awaitable[None]],
    ) -> None:
        self._image = image
        self._controller = controller
        self._clock = clock
        self._forward = forward
        self._create = create

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic with the default replication factor of this cluster."""
        await self._create(NewTopic(name, partitions, configs=dict(configs)))

    async def grow_topic(self, name: str, partitions: int) -> None:
        async def here() -> CreatePartitionsResponse:
            def decide() -> Steps[tuple[Sequence[Struct], None]]:
                records = yield from grow_topic(
                    self._image, name, partitions, None, self._clock.now_ms(), frozenset()
                )
                return records, None

            await self._controller.change(decide)
            return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name=name)])

        wanted = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
        answer = await self._forward(CREATE_PARTITIONS, request, here)
        assert isinstance(answer, CreatePartitionsResponse)
        for each in answer.results:
            _check(each.error_code, each.error_message)

    async def alter_topic(self, name: str, values: Mapping[str, str | None]) -> None:
        await self._alter((TOPIC, name), values)

    async def alter_link(self, name: str, values: Mapping[str, str | None]) -> None:
        await self._alter((LINK, name), values)

    async def _alter(self, resource: tuple[int, str], values: Mapping[str, str | None]) -> None:
        """Set configs; None removes one."""
        kind, name = resource

        async def here() -> IncrementalAlterConfigsResponse:
            def decide() -> tuple[Sequence[Struct], None]:
                current = self._image.configs.get(resource, {})
                changed = {key: value for key, value in {**current, **values}.items() if value is not None}
                check_change(resource, current, changed)
                return config_records(self._image, resource, changed, self._clock.now_ms()), None

            await self._controller.change(decide)
            return IncrementalAlterConfigsResponse(
                responses=[AlterConfigsResourceResponse(resource_type=kind, resource_name=name)]
            )

        configs = [
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in values.items()
        ]
        wanted = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[wanted])
        answer = await self._forward(INCREMENTAL_ALTER_CONFIGS, request, here)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        for each in answer.responses:
            _check(each.error_code, each.error_message)


def _check(code: int, message: str | None) -> None:
    if code:
        raise ApiError(ErrorCode(code), message or ErrorCode(code).name)
