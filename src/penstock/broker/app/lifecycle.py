"""Registers a broker with the controller, sends its heartbeats, and requests its controlled shutdown.

A broker is fenced from its registration until it has read the metadata log up to that registration. The
request contains the broker epoch before the last clean shutdown, and -1 after a crash. The controller keeps
the broker's replicas eligible for election only after a clean shutdown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from math import inf
from typing import Final

from penstock.broker.base.features import SUPPORTED_FEATURES, too_old_for
from penstock.broker.base.logs import get_logger
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.node.controller_client import ControllerUnavailable
from penstock.broker.node.quorum_wait import log_wait
from penstock.broker.replica.unclean_replicas import UncleanReplicas
from penstock.model.config import BrokerConfig
from penstock.model.config.listeners import security_protocol_id
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ticks import until_tick
from penstock.net.listener import Listener
from penstock.ports import Rng
from penstock.storage.manifest import Registration
from penstock.wire.apis.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequest,
    FailedTopic,
    TopicWithoutRoom,
)
from penstock.wire.apis.broker_registration import BROKER_REGISTRATION, BrokerRegistrationRequest
from penstock.wire.apis.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequest,
)
from penstock.wire.apis.endpoints import Feature
from penstock.wire.apis.endpoints import Listener as RegisteredListener

__all__ = ["Lifecycle"]

log = get_logger("lifecycle")
_NO_EPOCH: Final = -1
_RETRY_S: Final = 0.1
#: how much later than those of even ids the brokers of odd ids send heartbeats, so that the controller does
#: not get all heartbeats of one machine at once
_ODD_LATER_S: Final = 0.5
#: the heartbeat interval of a broker that wants to shut down
_SHUTDOWN_INTERVAL_S: Final = 0.05
#: how long a heartbeat of such a broker waits for a controller
_SHUTDOWN_PATIENCE_S: Final = 1.0
#: errors of a registration that disappear: the previous session must expire, or voters must agree first
_TRANSIENT: Final = (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
_FEATURES: Final = [
    Feature(name=name, min_supported_version=low, max_supported_version=high)
    for name, (low, high) in SUPPORTED_FEATURES.items()
]


class Lifecycle:
    """Registers a broker, and sends its heartbeats from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        node: ClusterNode,
        listeners: list[Listener],
        directories: list[bytes],
        rng: Rng,
        *,
        previous: Registration,
        offline: Callable[[], list[bytes]],
        cordoned: Callable[[], list[bytes]],
        without_room: Callable[[], list[TopicWithoutRoom]],
        failed: Callable[[], list[FailedTopic]],
        unclean: UncleanReplicas,
    ) -> None:
        """`offline` returns the failed data directories, `cordoned` those that get no new replicas,
        `without_room` the replicas in full directories, `failed` those in failed ones.

        `previous` is the registration that ended with the last clean shutdown.
        `unclean` contains the replicas to report before this broker is unfenced, and those found later.
        """
        self._config = config
        self._node = node
        self._listeners = listeners
        self._directories = directories
        self._rng = rng
        self._previous = previous
        self._offline = offline
        self._cordoned = cordoned
        self._without_room = without_room
        self._failed = failed
        self._unclean = unclean
        #: the broker epoch of the current registration
        self.epoch = _NO_EPOCH
        self.fenced = True
        self._wants_down = False
        #: the timeout of the heartbeat in flight, if there is one
        self._beating: asyncio.Timeout | None = None
        self._wake = asyncio.Event()
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @cached_property
    def _incarnation(self) -> bytes:
        """The id of this process in its registrations."""
        return self._rng.token(16)

    async def register(self) -> None:
        """Return when the controller has accepted this broker and the image has its registration.

        Without a controller the broker waits. A controller that refuses ends the wait after
        `initial.broker.registration.timeout.ms`.
        """
        with log_wait(self._node.quorum.state, self._patience_s):
            await self._register(self._config.initial_broker_registration_timeout_ms / 1000)
        await self._node.loader.wait_for(self.epoch + 1)

    async def register_controller(self) -> None:
        """Register this voter's features: a feature level is raised only if all voters support it."""
        if not self._node.quorum.state.is_voter:
            return
        request = ControllerRegistrationRequest(
            controller_id=self._node.node_id,
            incarnation_id=self._incarnation,
            listeners=self._listed(self._listeners[:1]),
            features=_FEATURES,
        )
        with log_wait(self._node.quorum.state, self._patience_s):
            await self._until_available(
                lambda patience_s: self._node.controller_client.send(
                    CONTROLLER_REGISTRATION, request, patience_s
                )
            )
            await self._until_available(self._node.update_voter)

    async def _until_available(self, send: Callable[[float], Awaitable[object]]) -> None:
        """Call `send` until a controller responds; raises the failure of the quorum."""
        while True:
            self._check_quorum()
            with suppress(ControllerUnavailable):
                await send(self._patience_s)
                return

    def _check_quorum(self) -> None:
        """Raise the failure after which this node has left the quorum: it has to end and be restarted."""
        if self._node.quorum.failure is not None:
            raise self._node.quorum.failure

    def _listed(self, listeners: Sequence[Listener]) -> list[RegisteredListener]:
        return [
            RegisteredListener(
                name=e.name,
                host=e.advertised_host,
                port=e.advertised_port,
                security_protocol=security_protocol_id(e.security_protocol),
            )
            for e in listeners
        ]

    @property
    def registration(self) -> Registration:
        """The registration of this process; its epoch is -1 as long as there is none."""
        return Registration(self.epoch, self._incarnation)

    async def _register(self, refused_max_s: float = inf) -> None:
        """Register; ApiError if a controller refuses for good, or for longer than `refused_max_s`."""
        previous = self._previous if self.epoch == _NO_EPOCH else self.registration
        request = BrokerRegistrationRequest(
            broker_id=self._node.node_id,
            cluster_id=self._node.cluster_id,
            incarnation_id=self._incarnation,
            listeners=self._listed(self._listeners),
            features=_FEATURES,
            rack=self._config.broker_rack,
            machine=self._config.penstock_machine,
            log_dirs=self._directories,
            previous_broker_epoch=previous.epoch,
            previous_incarnation_id=previous.incarnation,
        )
        loop = asyncio.get_running_loop()
        give_up_at = inf
        while True:
            self._check_quorum()
            try:
                response = await self._node.controller_client.send(
                    BROKER_REGISTRATION, request, self._patience_s
                )
            except ControllerUnavailable:
                give_up_at = inf
            else:
                if response.error_code == ErrorCode.NONE:
                    self.epoch = response.broker_epoch
                    log.debug("registered", epoch=self.epoch)
                    return
                code = ErrorCode(response.error_code)
                give_up_at = min(give_up_at, loop.time() + refused_max_s)
                if code not in _TRANSIENT or loop.time() >= give_up_at:
                    raise ApiError(code, self._rejection(code))
            await asyncio.sleep(_RETRY_S)

    def _rejection(self, code: ErrorCode) -> str:
        """Why this broker cannot start. Levels that it does not support are those of a later version."""
        rejected = "the controller has rejected the registration of this broker"
        too_old = too_old_for(self._node.loader.image.features)
        if code == ErrorCode.UNSUPPORTED_VERSION and too_old is not None:
            return f"{rejected}: {too_old}"
        return f"{rejected}: {code.name}"

    @property
    def _patience_s(self) -> float:
        return self._config.broker_session_timeout_ms / 1000

    @property
    def _shutdown_patience_s(self) -> float:
        return _SHUTDOWN_INTERVAL_S if self._node.quorum.state.majority_gone else _SHUTDOWN_PATIENCE_S

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._report())

    async def wait_until_unfenced(self) -> None:
        """Return when this broker is unfenced, and its own image contains that.

        Raises the failure of the quorum: the image of a node that has left it does not change any more.
        """
        await self._up.wait()
        if self._node.quorum.failure is not None:
            raise self._node.quorum.failure

    def wake(self) -> None:
        """Send a heartbeat at once: the controller, or the fencing of a broker, has changed."""
        self._check_unfenced()
        self._wake.set()

    def _check_unfenced(self) -> None:
        # The image alone is not enough: it may be older than the current registration.
        registered = self._node.loader.image.brokers.get(self._node.node_id)
        is_unfenced = not self.fenced and registered is not None and not registered.fenced
        if is_unfenced or self._node.is_over.is_set():
            self._up.set()

    async def shut_down(self, timeout_s: float) -> None:
        """Request a controlled shutdown, which elects other leaders; gives up after `timeout_s`."""
        if self._task is None:
            return
        self._wants_down = True
        self._wake.set()
        if self._beating is not None and not self._beating.expired():
            # The heartbeat in flight was sent before this call, and its controller may have failed: it gets a
            # short deadline. The next heartbeat requests the shutdown.
            self._beating.reschedule(asyncio.get_running_loop().time() + _SHUTDOWN_INTERVAL_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._down.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _report(self) -> None:
        while not self._down.is_set():
            self._wake.clear()
            if not await self._send_heartbeat():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._until_heartbeat()):
                        await self._wake.wait()

    def _until_heartbeat(self) -> float:
        interval_s = self._config.broker_heartbeat_interval_ms / 1000
        if self._wants_down:
            return min(interval_s, _SHUTDOWN_INTERVAL_S)
        later_s = self._node.node_id % 2 * _ODD_LATER_S
        return until_tick(asyncio.get_running_loop().time() - later_s, interval_s)

    async def _send_heartbeat(self) -> bool:
        """Send one heartbeat; whether the next is due at once."""
        unclean = self._unclean.report()
        sent = self._node.clock_watch.check()
        request = BrokerHeartbeatRequest(
            broker_id=self._node.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._node.loader.applied - 1,
            want_shut_down=self._wants_down,
            offline_log_dirs=self._offline(),
            cordoned_log_dirs=self._cordoned(),
            without_room=self._without_room(),
            failed_replicas=self._failed(),
            unclean_replicas=unclean.topics,
            image_checksum=self._node.image_check.report(),
            clock_ms=sent.wall_ms,
            clock_standing=self._node.clock_watch.standing,
        )
        patience_s = self._shutdown_patience_s if self._wants_down else self._patience_s
        try:
            # This node may be the controller itself, and wait for a majority that has stopped.
            async with asyncio.timeout(patience_s) as self._beating:
                response = await self._node.controller_client.send(
                    BROKER_HEARTBEAT, request, patience_s, purpose="heartbeat"
                )
        except (ControllerUnavailable, TimeoutError) as e:
            log.warning("controller_unavailable", error=str(e) or f"no response in {patience_s:g} s")
            if request.want_shut_down:
                # The last broker of a cluster that is being stopped: no other broker could lead.
                self._down.set()
            # A node that has left the quorum for good need not retry at once.
            return self._node.quorum.failure is None
        finally:
            self._beating = None
        if response.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            return await self._register_again()
        if response.error_code != ErrorCode.NONE:
            log.warning("heartbeat_refused", error=ErrorCode(response.error_code).name)
            return False
        self._unclean.settle(unclean)
        self._node.clock_watch.compared(sent, response.clock_ms, response.clock_vouched)
        self._node.image_check.compared(request.image_checksum, response.image_checksum)
        self.fenced = response.is_fenced
        self._check_unfenced()
        if response.should_shut_down:
            self._down.set()
        # A heartbeat that excludes replicas does nothing else: the next one unfences, or shuts down.
        return bool(unclean) and (response.is_fenced or self._wants_down)

    async def _register_again(self) -> bool:
        """Register again: an operator has unregistered this broker, or its epoch is outdated."""
        if self._wants_down:
            self._down.set()
            return False
        try:
            await self._register()
        except ApiError as e:
            log.error("not_registered", error=str(e))
        return False
