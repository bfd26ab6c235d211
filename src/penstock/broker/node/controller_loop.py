"""The periodic work of the active controller: broker sessions, preferred leaders, self-healing.

A broker without heartbeats for its session timeout is fenced. A broker whose process ends is fenced at once:
its connection closes, and new connections to its listener are refused. A new active controller starts a full
session for every broker and probes each broker's process itself, because a broker may have failed together
with the old controller. Only the session of the old controller's broker continues: it counts from the last
response that this node received from it as the quorum's leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from penstock.broker.base.features import found_cluster
from penstock.broker.base.logs import get_logger
from penstock.broker.node.controller import Controller, NotController
from penstock.broker.node.healer import Healer
from penstock.broker.node.left_throttles import LeftThrottles
from penstock.broker.node.peers import Peers
from penstock.broker.node.replica_reports import ReplicaReports
from penstock.broker.node.unclean_recovery import UncleanRecovery
from penstock.metadata.brokers import fence_broker
from penstock.metadata.checksum import Checksums, ImageChecksum
from penstock.metadata.clocks import Clocks, Reference, ReportedClock
from penstock.metadata.election import balance_leaders
from penstock.metadata.image import ClusterImage
from penstock.metadata.policy import Policy, Strategy
from penstock.metadata.scram_salts import settle_salt_key
from penstock.metadata.sessions import Sessions
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, StorageError
from penstock.model.steps import Steps
from penstock.net.connection import Connection
from penstock.ports import Clock, Rng
from penstock.raft.messages import NO_NODE
from penstock.raft.roles import LeaderContact
from penstock.wire.apis.broker_heartbeat import ReportedChecksum
from penstock.wire.schema import Struct

__all__ = ["ControllerLoop"]

log = get_logger("controller")
#: turns of the event loop after which the heartbeats that had arrived before them are counted: bytes are read
#: in the first one, and tasks that handle requests run in the next ones
_TURNS: Final = 5
#: how long the previous leader, if alive, may take to discover the new leader and to send a heartbeat
_REDISCOVERY_MS: Final = 250
#: the pause after a disk error in the first decision
_RETRY_S: Final = 0.5


class ControllerLoop:
    """Runs while this node is the active controller; `sessions` is None otherwise."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        controller: Controller,
        peers: Peers,
        clock: Clock,
        rng: Rng,
        own_clock: Callable[[], ReportedClock],
    ) -> None:
        """`own_clock` reads the wall clock of this node."""
        self._config = config
        self._image = image
        self._controller = controller
        self._peers = peers
        self._clock = clock
        self._rng = rng
        self._own_clock = own_clock
        self.sessions: Sessions | None = None
        self.clocks = Clocks(config.node_id)
        self.checksums = Checksums()
        #: brokers whose metadata differs from the other nodes'
        self._diverged: set[int] = set()
        #: brokers with a data directory that is full or has failed
        self._without_room: set[int] = set()
        #: the broker of each connection that carries heartbeats
        self._callers: dict[Connection, int] = {}
        #: the last contact with the previous leader of the quorum
        self._last_contact = LeaderContact(NO_NODE, 0)
        #: returns true for a node that this leader has had contact with
        self._has_heard: Callable[[int], bool] = lambda node: False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.reports = ReplicaReports(image, peers)
        self._recovery = UncleanRecovery(config, image, controller, self.reports, clock, lambda: self.policy)
        self.healer = Healer(
            config, image, controller, lambda: self.policy, lambda: self._without_room, self.now_ms
        )
        self._left_throttles = LeftThrottles(image, controller, clock, self.now_ms)

    @property
    def policy(self) -> Policy:
        return Policy(
            self._config.unclean_leader_election_enable,
            Strategy(self._config.unclean_recovery_strategy),
            self.clocks.off,
        )

    def metadata_changed(self) -> None:
        """The records of a change were applied: partitions may wait for an unclean recovery."""
        self._recovery.wake()

    def now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def leader_changed(self, leader_id: int, last: LeaderContact, has_heard: Callable[[int], bool]) -> None:
        """The leader has changed; `last` is this node's last contact with a leader that it followed.

        `has_heard` returns true for a node that has voted for this leader, or has fetched from it.
        """
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._recovery.cancel()
        self.sessions = None
        self.clocks = Clocks(self._config.node_id)
        self.checksums, self._diverged = Checksums(), set()
        self._without_room = set()
        if leader_id == self._config.node_id:
            self._last_contact, self._has_heard = last, has_heard
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        await self._recovery.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- heartbeats

    def heard(self, broker_id: int, connection: Connection | None) -> None:
        """A broker has sent a request on `connection`; None for this node's own broker."""
        if connection is not None:
            self._callers[connection] = broker_id

    @contextmanager
    def held(self, broker_id: int) -> Iterator[None]:
        """Keep the session of a broker whose heartbeat waits for a change."""
        sessions = self.sessions
        assert sessions is not None
        sessions.hold(broker_id)
        try:
            yield
        finally:
            sessions.release(broker_id, self.now_ms())

    def update_full_directories(self, broker_id: int, *, is_missing: bool) -> None:
        """A heartbeat names replicas in directories that are full or have failed, or no longer does."""
        if is_missing:
            self._without_room.add(broker_id)
        else:
            self._without_room.discard(broker_id)

    def compare_clock(self, broker_id: int, reported: ReportedClock) -> Reference:
        """Compare a broker's wall clock with the other brokers'; returns the clock for the response."""
        config, clocks = self._config, self.clocks
        was_off = broker_id in clocks.off
        reference = clocks.heard(
            self._image,
            broker_id,
            reported,
            own=self._own_clock(),
            now_ms=self.now_ms(),
            session_ms=config.broker_session_timeout_ms,
            limit_ms=config.penstock_clock_skew_max_ms,
        )
        skew_ms = clocks.off.get(broker_id)
        if skew_ms is not None and not was_off:
            limit_ms = config.penstock_clock_skew_max_ms
            log.warning("broker_clock_wrong", broker=broker_id, skew_ms=skew_ms, limit_ms=limit_ms)
        elif was_off and skew_ms is None:
            log.info("broker_clock_right", broker=broker_id)
        return reference

    def compare_checksum(
        self, broker_id: int, reported: ReportedChecksum, own: ImageChecksum | None
    ) -> ReportedChecksum | None:
        """Compare the checksum of a broker's image with the others'; returns the right one if known."""
        node_id = self._config.node_id
        found = ImageChecksum(reported.end_offset, reported.checksum, reported.layout)
        if own is not None:
            self.checksums.heard(node_id, own)
        self.checksums.heard(broker_id, found)
        expected = self.checksums.expected(broker_id, node_id, self._image.brokers)
        if expected is None:
            return None
        if expected == found:
            if broker_id in self._diverged:
                self._diverged.discard(broker_id)
                log.info("broker_metadata_agrees", broker=broker_id, end_offset=found.end_offset)
        elif broker_id not in self._diverged:
            self._diverged.add(broker_id)
            log.error(
                "broker_metadata_diverged",
                broker=broker_id,
                end_offset=found.end_offset,
                checksum=found.checksum,
                expected=expected.checksum,
            )
        return ReportedChecksum(**expected._asdict())

    def connection_lost(self, connection: Connection) -> None:
        broker_id = self._callers.pop(connection, None)
        if broker_id is not None and self.sessions is not None:
            self._peers.probe(broker_id)

    def was_held_up(self, stalled_s: float) -> None:
        """This process did not run for a while: brokers get time to repeat heartbeats that timed out."""
        if self.sessions is not None:
            log.warning("controller_was_held_up", ms=round(stalled_s * 1000))
            self.sessions.spare(self.now_ms() + 2 * self._config.broker_heartbeat_interval_ms)

    def gone(self, broker_id: int) -> None:
        """End the session of a broker whose process has probably ended."""
        broker = self._image.brokers.get(broker_id)
        if self.sessions is not None and broker is not None:
            self.sessions.gone(broker_id, broker.epoch)
            self._wake.set()

    # -- the loop

    async def _serve(self) -> None:
        try:
            await self._become_active()
            self._recovery.start()
            self.healer.begin()
            self._left_throttles.begin()
            next_balance_ms = self.now_ms() + self._balance_interval_ms
            while True:
                balances = self.now_ms() >= next_balance_ms
                if balances:
                    next_balance_ms = self.now_ms() + self._balance_interval_ms
                await self._run_tasks(balances)
                await self._sleep_until(next_balance_ms)
        except NotController:
            return

    async def _become_active(self) -> None:
        """Make the first decision; retries after a disk error, for example if the disk is full."""
        while True:
            try:
                await self._controller.change(self._begin)
                return
            except StorageError as e:
                log.error("controller_not_begun", error=str(e))
                await asyncio.sleep(_RETRY_S)

    async def _run_tasks(self, balances: bool) -> None:
        try:
            await self._fence_expired()
            if settle_salt_key(self._image, self._rng.token):
                await self._controller.change(lambda: (settle_salt_key(self._image, self._rng.token), None))
            if balances and self._config.auto_leader_rebalance_enable:
                await self._controller.change(self._balance)
            await self.healer.work()
            await self._left_throttles.work()
        except (StorageError, ApiError) as e:
            # The disk may be full, for example. The next round tries again.
            log.error("chores_failed", error=str(e))

    @property
    def _balance_interval_ms(self) -> int:
        return self._config.leader_imbalance_check_interval_seconds * 1000

    def _begin(self) -> tuple[Sequence[Struct], None]:
        """The first decision of a new active controller, on an image with all earlier decisions."""
        self.sessions = self._first_sessions()
        log.info("controller_active", node_id=self._config.node_id)
        for broker in self._image.brokers.values():
            if not broker.fenced and broker.id != self._config.node_id:
                self._peers.probe(broker.id)
        return found_cluster(self._image, self._config, self._rng.token), None

    def _first_sessions(self) -> Sessions:
        """Full sessions for all brokers but the previous leader, however long the election has taken."""
        now_ms, timeout_ms = self.now_ms(), self._config.broker_session_timeout_ms
        sessions = Sessions(self._image, timeout_ms, now_ms)
        last = self._image.brokers.get(self._last_contact.node)
        if last is not None and not last.fenced and not self._has_heard(last.id):
            sessions.heard(last.id, last.epoch, -1, self._last_contact.at_ms)
            sessions.spare(now_ms + min(_REDISCOVERY_MS, timeout_ms))
        return sessions

    async def _fence_expired(self) -> None:
        assert self.sessions is not None
        if self.sessions.expired(self._image, self.now_ms()):
            # Heartbeats may wait in the buffers of sockets: timers run before bytes are read.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        for broker_id in self.sessions.expired(self._image, self.now_ms()):
            log.info("broker_fenced", broker=broker_id)
            await self._controller.change(partial(self._fence, broker_id), is_urgent=True)

    def _fence(self, broker_id: int) -> Steps[tuple[Sequence[Struct], None]]:
        """Fence a broker unless its heartbeat has arrived meanwhile."""
        assert self.sessions is not None
        if broker_id not in self.sessions.expired(self._image, self.now_ms()):
            return [], None
        return (yield from fence_broker(self._image, self.policy, broker_id)), None

    def _balance(self) -> tuple[Sequence[Struct], None]:
        percentage = self._config.leader_imbalance_per_broker_percentage
        return balance_leaders(self._image, self.policy, percentage), None

    async def _sleep_until(self, time_ms: float) -> None:
        assert self.sessions is not None
        # A session that starts during the sleep expires after it.
        session_ms = self._config.broker_session_timeout_ms
        chores_ms = min(self.healer.next_ms, self._left_throttles.next_ms)
        due_ms = min(time_ms, chores_ms, self.now_ms() + session_ms)
        expiry_ms = self.sessions.next_expiry(self._image)
        if expiry_ms is not None:
            due_ms = min(due_ms, expiry_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due_ms - self.now_ms()) / 1000):
                await self._wake.wait()
        self._wake.clear()
