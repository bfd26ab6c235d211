"""Carries out self-healing while this node is the active controller; `metadata.healing` decides.

The controller loop decides at most every `_INTERVAL_MS`, and only if the basis of the decision has changed.
It decides nothing right after this node became the active controller, or was paused: heartbeats of live
brokers may not have arrived yet.

A share is planned in slices, one in each turn of the controller loop. Its plan is discarded if a broker comes
or goes, or if a round meanwhile decides that it is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.node.controller import Controller
from penstock.metadata.absences import Absences
from penstock.metadata.healing import (
    Decision,
    Replica,
    Settings,
    Situation,
    decide,
    obstacles,
    plan_share,
    records_of,
)
from penstock.metadata.image import ClusterImage, Origin
from penstock.metadata.policy import Policy
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.model.ids import TopicId
from penstock.model.steps import Steps
from penstock.wire.apis.broker_heartbeat import FailedTopic
from penstock.wire.schema import Struct

__all__ = ["Healer"]

log = get_logger("healing")
_INTERVAL_MS: Final = 500.0
#: a round that starts later than this means that this node was paused, and missed the brokers' heartbeats
_LATE_MS: Final = 3000.0
#: how many session timeouts brokers have to send a heartbeat after this node became active or was paused
_SESSIONS: Final = 2
_SHOWN: Final = 10


class _Basis(NamedTuple):
    """The inputs of a decision."""

    offset: int
    settings: Settings
    due: tuple[int, ...]
    full: frozenset[int]
    failed: frozenset[Replica]
    is_quiet: bool


class _Planning(NamedTuple):
    """A plan that is being made, for these brokers."""

    membership: object
    steps: Steps[Decision]


class Healer:
    """Moves replicas of failed brokers on the active controller; `observed` is called on every node."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        controller: Controller,
        policy: Callable[[], Policy],
        full: Callable[[], Collection[int]],
        now_ms: Callable[[], float],
    ) -> None:
        self._config = config
        self._image = image
        self._controller = controller
        self._policy = policy
        self._full = full
        self._now_ms = now_ms
        self._absences = Absences()
        self._listening_since_ms = 0.0
        self._last_round_ms = 0.0
        self._last = Decision([], [])
        #: the basis of the last decision if it started and cancelled nothing
        self._idle: _Basis | None = None
        self._planning: _Planning | None = None
        self._obstacles: list[str] = []
        #: replicas in failed data directories of brokers that are up, and since when this node knows
        self._failed_since_ms: dict[Replica, float] = {}

    def observed(self) -> None:
        """Records were applied to the image."""
        self._absences.observed(self._image, self._now_ms())

    def begin(self) -> None:
        """This node is the active controller now."""
        self._listening_since_ms = self._last_round_ms = self._now_ms()
        self._last, self._idle, self._obstacles = Decision([], []), None, []
        self._planning = None
        self._failed_since_ms = {}

    def failed_replicas(self, node: int, topics: Iterable[FailedTopic]) -> None:
        """A heartbeat has listed the replicas in failed data directories of a broker."""
        listed = {(node, TopicId(topic.topic_id), index) for topic in topics for index in topic.partitions}
        known = {each for each in self._failed_since_ms if each[0] == node}
        if listed == known:
            return
        now_ms = self._now_ms()
        for each in known - listed:
            del self._failed_since_ms[each]
        for each in sorted(listed - known):
            self._failed_since_ms[each] = now_ms

    @property
    def next_ms(self) -> float:
        """The time of the next round, or of the next slice of a plan."""
        if self._planning is not None:
            return self._now_ms()
        return self._last_round_ms + _INTERVAL_MS if self._is_on else inf

    @property
    def _is_on(self) -> bool:
        """Whether healing is switched on, or moves that it has started are still in progress."""
        config = self._config
        return (
            config.penstock_self_healing_enable
            or config.penstock_balance_new_brokers
            or any(p.origin in (Origin.REBUILD, Origin.SHARE) for p in self._image.reassigning.values())
        )

    async def work(self) -> None:
        """Start and cancel moves if a round is due; else go on with the plan that is being made."""
        now_ms = self._now_ms()
        if not self._is_on:
            self._planning = None
        elif now_ms >= self._last_round_ms + _INTERVAL_MS:
            await self._round(now_ms)
        elif self._planning is not None:
            self._plan_on(self._planning)

    async def _round(self, now_ms: float) -> None:
        if now_ms - self._last_round_ms > _INTERVAL_MS + _LATE_MS:
            self._listening_since_ms = now_ms
        self._last_round_ms = now_ms
        if now_ms - self._listening_since_ms < _SESSIONS * self._config.broker_session_timeout_ms:
            return
        basis = self._basis()
        if basis == self._idle:
            return
        try:
            decision = await self._controller.change(self._decide)
        except PenstockError:
            raise
        except Exception as e:
            # The controller loop also fences brokers, which must go on after an error here.
            log.error("healing_failed", error=repr(e), exc_info=e)
            self._idle = basis
            return
        self._last = decision
        self._idle = None if decision.start or decision.cancel else basis
        if not decision.needs_plan:
            self._planning = None
        elif self._planning is None:
            steps = plan_share(self._image, self._settings(), self._situation())
            self._planning = _Planning(self._image.membership, steps)
        self._report(decision)

    def _plan_on(self, planning: _Planning) -> None:
        """One slice of a plan."""
        if planning.membership is not self._image.membership:
            self._planning = self._idle = None
            return
        try:
            next(planning.steps)
        except StopIteration as e:
            self._planning = self._idle = None
            self._last = e.value
        except Exception as e:
            # As above. What has changed since the last round is decided on in the next one.
            log.error("share_not_planned", error=repr(e), exc_info=e)
            self._planning, self._idle = None, self._basis()

    def notes(self) -> list[str]:
        """The state of the replicas of failed brokers, as text for operators."""
        settings, situation = self._settings(), self._situation()
        if not settings.rebuild:
            return []
        found = []
        for node, gone_ms in situation.gone.items():
            held = len(self._image.partitions_on(node))
            if held and gone_ms < settings.delay_ms:
                left_s = (settings.delay_ms - gone_ms) / 1000
                found.append(
                    f"broker {node} has been gone for {gone_ms / 1000:.0f} s; "
                    f"its {held} replicas are rebuilt on other brokers in {left_s:.0f} s"
                )
            elif held:
                found.append(
                    f"broker {node} has been gone for {gone_ms / 1000:.0f} s; "
                    f"{held} of its replicas are not rebuilt yet"
                )
        return [*found, *self._failed_notes(settings), *obstacles(self._image, settings, situation)]

    def _failed_notes(self, settings: Settings) -> Iterator[str]:
        """The state of the replicas in failed data directories."""
        now_ms = self._now_ms()
        for node in sorted({each[0] for each in self._failed_since_ms}):
            since = [ms for each, ms in self._failed_since_ms.items() if each[0] == node]
            left_s = (settings.delay_ms - (now_ms - min(since))) / 1000
            replicas = f"{len(since)} replicas of broker {node} are in a failed data directory"
            if left_s > 0:
                yield f"{replicas}; they are rebuilt on other brokers in {left_s:.0f} s"
            else:
                yield f"{replicas}, and are not rebuilt yet"

    def _decide(self) -> tuple[list[Struct], Decision]:
        decision = decide(self._image, self._settings(), self._situation())
        return records_of(self._image, self._policy(), decision)

    def _settings(self) -> Settings:
        config = self._config
        return Settings(
            config.penstock_self_healing_enable,
            config.penstock_balance_new_brokers,
            config.penstock_self_healing_delay_ms,
            config.penstock_self_healing_partitions_max,
            config.penstock_balance_tolerance_percent / 100,
            frozenset(map(int, config.penstock_balance_exclude_brokers)),
        )

    def _situation(self) -> Situation:
        now_ms, last = self._now_ms(), self._last
        return Situation(
            self._absences.gone(now_ms),
            self._absences.quiet_ms(now_ms),
            self._full(),
            last.sharing,
            last.planned,
            last.settled,
            self._failed(now_ms),
        )

    def _failed(self, now_ms: float) -> dict[Replica, float]:
        """For how long replicas have been in failed directories; those of brokers that are up."""
        brokers = self._image.brokers
        return {
            each: now_ms - since_ms
            for each, since_ms in self._failed_since_ms.items()
            if each[0] in brokers and not brokers[each[0]].fenced
        }

    def _basis(self) -> _Basis:
        settings, situation = self._settings(), self._situation()
        return _Basis(
            self._image.offset,
            settings,
            tuple(node for node, gone_ms in situation.gone.items() if gone_ms >= settings.delay_ms),
            frozenset(situation.full),
            frozenset(each for each, ms in situation.failed.items() if ms >= settings.delay_ms),
            situation.quiet_ms >= settings.quiet_ms,
        )

    def _report(self, decision: Decision) -> None:
        gone = self._absences.gone(self._now_ms())
        for origin, event in ((Origin.REBUILD, "rebuild_started"), (Origin.SHARE, "share_started")):
            started = [str(each.move.partition) for each in decision.start if each.origin == origin]
            if started and origin == Origin.REBUILD:
                delay_ms = self._config.penstock_self_healing_delay_ms
                brokers = {node: round(ms / 1000) for node, ms in gone.items() if ms >= delay_ms}
                failed = [node for node, *_ in self._failed_since_ms]
                log.info(
                    event,
                    partitions=len(started),
                    first=started[:_SHOWN],
                    gone_s=brokers,
                    failed_directories=sorted(set(failed)),
                )
            elif started:
                log.info(event, partitions=len(started), first=started[:_SHOWN])
        for reason in dict.fromkeys(each.reason for each in decision.cancel):
            cancelled = [str(each.partition) for each in decision.cancel if each.reason == reason]
            log.info(
                "move_cancelled",
                reason=reason,
                partitions=len(cancelled),
                first=cancelled[:_SHOWN],
            )
        found = obstacles(self._image, self._settings(), self._situation())
        if found != self._obstacles:
            self._obstacles = found
            for each in found:
                log.warning("rebuild_waits", reason=each)
