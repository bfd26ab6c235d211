"""The APIs that brokers send to the active controller; the response is NOT_CONTROLLER on any other node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from penstock.broker.node.controller import Controller, Decide, NotController
from penstock.broker.node.controller_loop import ControllerLoop
from penstock.broker.node.image_check import ImageCheck
from penstock.metadata.alter_partition import alter_partition
from penstock.metadata.brokers import (
    check_broker_epoch,
    heartbeat,
    register_broker,
    register_controller,
    unregister_broker,
)
from penstock.metadata.clocks import ReportedClock
from penstock.metadata.image import ClusterImage
from penstock.metadata.producer_ids import allocate_producer_ids, reserve_producer_ids
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import Steps
from penstock.net.connection import Connection
from penstock.net.listener import Listener
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.allocate_producer_ids import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from penstock.wire.apis.alter_partition import (
    ALTER_PARTITION,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from penstock.wire.apis.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.wire.apis.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from penstock.wire.apis.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.wire.apis.unregister_broker import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.wire.schema import Struct

__all__ = ["ControllerService"]

T = TypeVar("T")
Method = Callable[["ControllerService", Any, Connection | None], Awaitable[Struct]]


class ControllerService:
    """Handles the requests of brokers to the active controller."""

    def __init__(
        self,
        cluster_id: str,
        internal: Listener | None,
        image: ClusterImage,
        image_check: ImageCheck,
        controller: Controller,
        controller_loop: ControllerLoop,
    ) -> None:
        self._cluster_id = cluster_id
        #: the name of the listener for other nodes
        self._internal = "" if internal is None else internal.name
        self._image = image
        self._image_check = image_check
        self._controller = controller
        self._controller_loop = controller_loop

    async def handle(
        self, api: Api[RequestT, ResponseT], request: RequestT, connection: Connection | None = None
    ) -> ResponseT:
        """The response to a request that came on `connection`, None for this node's own requests."""
        method = SERVED[api]
        try:
            return cast(ResponseT, await method(self, request, connection))
        except NotController as e:
            return _error(api, ErrorCode.NOT_CONTROLLER, str(e))
        except ApiError as e:
            return _error(api, e.code, str(e))

    async def _change(self, decide: Decide[T]) -> T:
        return await self._controller.change(decide)

    async def _register(
        self, request: BrokerRegistrationRequest, connection: Connection | None
    ) -> BrokerRegistrationResponse:
        controller_loop = self._controller_loop

        def decide() -> Steps[tuple[Sequence[Struct], int]]:
            if controller_loop.sessions is None:
                raise NotController("this node is not active yet")
            alive = controller_loop.sessions.alive(request.broker_id, controller_loop.now_ms())
            records, epoch = yield from register_broker(
                self._image,
                controller_loop.policy,
                request,
                cluster_id=self._cluster_id,
                session_alive=alive and not self._has_replaced(request),
                next_offset=self._controller.next_offset,
            )
            known = self._image.brokers.get(request.broker_id)
            if known is None or known.epoch != epoch:
                controller_loop.sessions.forget(request.broker_id)
            # Otherwise the same process has repeated its registration. Its session must continue: without a
            # session an unfenced broker would never be fenced.
            return records, epoch

        epoch = await self._change(decide)
        controller_loop.heard(request.broker_id, connection)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def _has_replaced(self, request: BrokerRegistrationRequest) -> bool:
        """Whether the broker has the address of its id's current registration: that process has ended."""
        known = self._image.brokers.get(request.broker_id)
        name = self._internal
        listeners = {listener.name: (listener.host, listener.port) for listener in request.listeners}
        return known is not None and name in listeners and known.endpoints.get(name) == listeners[name]

    async def _heartbeat(
        self, request: BrokerHeartbeatRequest, connection: Connection | None
    ) -> BrokerHeartbeatResponse:
        controller_loop = self._controller_loop
        if not self._controller.is_active or controller_loop.sessions is None:
            raise NotController("this node is not active")
        check_broker_epoch(self._image, request.broker_id, request.broker_epoch)
        controller_loop.heard(request.broker_id, connection)
        controller_loop.sessions.heard(
            request.broker_id, request.broker_epoch, request.current_metadata_offset, controller_loop.now_ms()
        )
        controller_loop.update_full_directories(request.broker_id, is_missing=bool(request.without_room))
        controller_loop.healer.failed_replicas(request.broker_id, request.failed_replicas)
        clock = ReportedClock.received(request.clock_ms, request.clock_standing)
        reference = controller_loop.compare_clock(request.broker_id, clock)
        # Only the shutdown of a broker waits for all others, and only it costs a look at all of them.
        lowest = controller_loop.sessions.lowest_offset(self._image) if request.want_shut_down else -1
        # Nearly every heartbeat changes nothing and need not wait for other changes.
        answer = self._unchanged(request, lowest)
        if answer is None:
            with controller_loop.held(request.broker_id):
                answer = await self._controller.change(
                    lambda: heartbeat(self._image, controller_loop.policy, request, lowest), is_urgent=True
                )
            reference = controller_loop.compare_clock(request.broker_id, ReportedClock())
        answer.clock_ms, answer.clock_vouched = reference.clock_ms, int(reference.vouched)
        if request.image_checksum is not None:
            answer.image_checksum = controller_loop.compare_checksum(
                request.broker_id, request.image_checksum, self._image_check.latest
            )
        if answer.should_shut_down and controller_loop.sessions is not None:
            controller_loop.sessions.forget(request.broker_id)
        return answer

    def _unchanged(self, request: BrokerHeartbeatRequest, lowest: int) -> BrokerHeartbeatResponse | None:
        """The response to a heartbeat that changes no metadata; None if it changes some."""
        try:
            next(heartbeat(self._image, self._controller_loop.policy, request, lowest))
        except StopIteration as e:
            records, answer = e.value
            return None if records else answer
        return None

    async def _unregister(
        self, request: UnregisterBrokerRequest, connection: Connection | None
    ) -> UnregisterBrokerResponse:
        controller_loop = self._controller_loop

        def decide() -> Steps[tuple[Sequence[Struct], None]]:
            records = yield from unregister_broker(self._image, controller_loop.policy, request.broker_id)
            if controller_loop.sessions is not None:
                controller_loop.sessions.forget(request.broker_id)
            return records, None

        await self._change(decide)
        return UnregisterBrokerResponse()

    async def _alter_partition(
        self, request: AlterPartitionRequest, connection: Connection | None
    ) -> AlterPartitionResponse:
        return await self._change(lambda: alter_partition(self._image, self._controller_loop.policy, request))

    async def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, connection: Connection | None
    ) -> AllocateProducerIdsResponse:
        return await self._change(lambda: allocate_producer_ids(self._image, request))

    async def reserve_producer_ids(self, end: int) -> None:
        """Have no broker use a producer id below `end`: restored batches have them."""
        await self._change(lambda: (reserve_producer_ids(self._image, end), None))

    async def _register_controller(
        self, request: ControllerRegistrationRequest, connection: Connection | None
    ) -> ControllerRegistrationResponse:
        await self._change(lambda: (register_controller(request), None))
        return ControllerRegistrationResponse()


def _error(api: Api[Any, ResponseT], code: ErrorCode, message: str) -> ResponseT:
    response: Any = api.response()
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = message
    return cast(ResponseT, response)


#: the APIs for brokers; each response has a top-level error code
SERVED: dict[Api[Any, Any], Method] = {
    BROKER_REGISTRATION: ControllerService._register,
    BROKER_HEARTBEAT: ControllerService._heartbeat,
    UNREGISTER_BROKER: ControllerService._unregister,
    ALTER_PARTITION: ControllerService._alter_partition,
    ALLOCATE_PRODUCER_IDS: ControllerService._allocate_producer_ids,
    CONTROLLER_REGISTRATION: ControllerService._register_controller,
}
