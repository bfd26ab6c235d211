"""Elects leaders for partitions without ISR and eligible replicas, while this node is the active controller.

It collects the log end offsets of the replicas. `metadata.unclean_recovery` decides. At most one request per
broker is in flight, for all partitions that need its report, so a hanging broker delays no other. A round
decides on the reports that have arrived. It runs after every change of the metadata, every response, and
every pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.controller import Controller, NotController
from penstock.broker.node.replica_reports import Answers, ReplicaReports
from penstock.metadata.election import MOST_ELECTIONS
from penstock.metadata.image import ClusterImage, PartitionImage, PartitionKey
from penstock.metadata.policy import Policy, Strategy
from penstock.metadata.unclean_recovery import Recovery, ReplicaReport, is_current, recover, strategy_for
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, ErrorCode, StorageError
from penstock.ports import Clock
from penstock.wire.schema import Struct

__all__ = ["UncleanRecovery"]

log = get_logger("controller")
#: an older report is requested again: a disk may have failed since
_FRESH_MS: Final = 10_000
#: pauses between the requests to a broker whose reports are not current yet; the last one is repeated
_RETRIES_MS: Final = (20, 50, 100, 200, 500, 1000)
#: requests after which an aggressive recovery ignores a broker's replicas, and the reason that is logged
_BEHIND: Final = 4
_NOT_APPLIED: Final = ErrorCode.UNKNOWN_LEADER_EPOCH
#: how long a recovery waits before that is logged, and how often the event is repeated
_QUIET_MS: Final = 1000
_REMIND_MS: Final = 30_000
_HINT: Final = (
    "start these brokers and repair their disks; to elect the most complete other replica, and lose the "
    "records that it lacks: penstock config set --topic TOPIC unclean.recovery.strategy=aggressive"
)


class _Case:
    """One partition to recover, since this controller first found it."""

    __slots__ = ("batches", "compare_at", "reported_ms", "reports", "since_ms", "strategy")

    def __init__(self, since_ms: float) -> None:
        self.since_ms = since_ms
        self.strategy = Strategy.NONE
        self.reports: dict[int, ReplicaReport | ErrorCode] = {}
        self.reported_ms: dict[int, float] = {}
        #: the offset whose batch is compared on all replicas, and the checksums that are known (`Batches`)
        self.compare_at: int | None = None
        self.batches: dict[tuple[int, int, int], int | None] = {}

    def lacks_batch(self, report: ReplicaReport) -> bool:
        """Returns true if a broker has not been asked for the batch that is compared."""
        at = self.compare_at
        return at is not None and (report.broker, report.broker_epoch, at) not in self.batches

    def since(self, oldest_ms: float) -> dict[int, ReplicaReport | ErrorCode]:
        """The reports since `oldest_ms`."""
        return {node: report for node, report in self.reports.items() if self.reported_ms[node] >= oldest_ms}


class UncleanRecovery:
    """Runs from `start`, when this node is the active controller, to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        controller: Controller,
        reports: ReplicaReports,
        clock: Clock,
        policy: Callable[[], Policy],
    ) -> None:
        self._config = config
        self._image = image
        self._controller = controller
        self._reports = reports
        self._clock = clock
        self._policy = policy
        self._cases: dict[PartitionKey, _Case] = {}
        #: requests in flight, by broker
        self._requests: dict[int, asyncio.Task[None]] = {}
        #: by broker: the number of requests in a row without current reports, and the time of the next one
        self._retries: dict[int, tuple[int, float]] = {}
        self._remind_ms = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def cancel(self) -> None:
        """Stop at once: another node is the controller."""
        for task in (self._task, *self._requests.values()):
            if task is not None:
                task.cancel()
        self._task = None
        self._requests, self._cases, self._retries = {}, {}, {}

    async def stop(self) -> None:
        tasks = [task for task in (self._task, *self._requests.values()) if task is not None]
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Run a round after a change of the metadata, if any partition has no leader."""
        if self._image.leaderless or self._cases:
            self._wake.set()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    async def _serve(self) -> None:
        with suppress(NotController):
            while True:
                self._wake.clear()
                try:
                    pause_ms = await self._round()
                except (StorageError, ApiError) as e:
                    log.error("unclean_recovery_failed", error=str(e))
                    pause_ms = _RETRIES_MS[-1]
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if pause_ms is None else pause_ms / 1000):
                        await self._wake.wait()

    async def _round(self) -> float | None:
        """Elect leaders for which enough reports are there, request missing ones; returns the next pause."""
        self._find_cases()
        if not self._cases:
            return None
        self._request_reports()
        waiting = self._try()
        if self._compare(waiting):
            self._request_reports()
        ready = [key for key, recovery in waiting.items() if recovery.record is not None]
        for first in range(0, len(ready), MOST_ELECTIONS):
            await self._elect(ready[first : first + MOST_ELECTIONS])
        self._log_waiting({key: recovery for key, recovery in waiting.items() if recovery.record is None})
        return max(1.0, self._next_ms() - self._now_ms())

    def _find_cases(self) -> None:
        policy, now_ms = self._policy(), self._now_ms()
        cases: dict[PartitionKey, _Case] = {}
        timeout_ms = self._config.unclean_recovery_timeout_ms
        for key, partition in self._image.leaderless.items():
            strategy = strategy_for(self._image, policy, partition)
            if strategy is None:
                continue
            case = cases[key] = self._cases.get(key) or _Case(now_ms)
            case.strategy = strategy
            if strategy is Strategy.BALANCED and 0 <= timeout_ms <= now_ms - case.since_ms:
                case.strategy = Strategy.AGGRESSIVE
        self._cases = cases

    # -- reports

    def _request_reports(self) -> None:
        now_ms = self._now_ms()
        wanted: dict[int, list[PartitionImage]] = {}
        for key, case in self._cases.items():
            partition = self._image.leaderless[key]
            for node in partition.replicas:
                if case.strategy is not Strategy.NONE and self._lacks(case, partition, node, now_ms):
                    wanted.setdefault(node, []).append(partition)
        for node, partitions in wanted.items():
            if node not in self._requests and self._retries.get(node, (0, 0.0))[1] <= now_ms:
                offsets = ((each.key, self._cases[each.key].compare_at) for each in partitions)
                batches_at = {key: offset for key, offset in offsets if offset is not None}
                request = self._request(node, partitions, batches_at)
                self._requests[node] = asyncio.get_running_loop().create_task(request)

    def _lacks(self, case: _Case, partition: PartitionImage, node: int, now_ms: float) -> bool:
        """Whether a live broker's report on its replica is missing or too old."""
        broker, report = self._image.brokers.get(node), case.reports.get(node)
        if broker is None or not broker.active:
            case.reports.pop(node, None)
            return False
        if not isinstance(report, ReplicaReport) or not is_current(self._image, partition, report):
            return True
        return now_ms - case.reported_ms[node] > _FRESH_MS or case.lacks_batch(report)

    async def _request(
        self, node: int, partitions: Sequence[PartitionImage], batches_at: Mapping[PartitionKey, int]
    ) -> None:
        try:
            answers = await self._reports.request(node, partitions, batches_at)
        finally:
            self._requests.pop(node, None)
        now_ms, tried = self._now_ms(), self._retries.get(node, (0, 0.0))[0]
        if self._take(node, answers, batches_at, now_ms, behind=tried >= _BEHIND):
            self._retries.pop(node, None)
        else:
            self._retries[node] = (tried + 1, now_ms + _RETRIES_MS[min(tried, len(_RETRIES_MS) - 1)])
        self._wake.set()

    def _take(
        self,
        node: int,
        answers: Answers,
        batches_at: Mapping[PartitionKey, int],
        now_ms: float,
        *,
        behind: bool,
    ) -> bool:
        """Keep a broker's reports; whether all of them are current.

        A broker that is `behind` has had enough time to apply that the partitions have no leader.
        """
        counts = True
        for key, answer in answers.items():
            case, partition = self._cases.get(key), self._image.leaderless.get(key)
            if case is None or partition is None:
                continue
            case.reported_ms[node] = now_ms
            if isinstance(answer, ReplicaReport) and is_current(self._image, partition, answer):
                case.reports[node] = answer
                if key in batches_at:
                    # None of a broker of an earlier release, which does not know the field.
                    case.batches[node, answer.broker_epoch, batches_at[key]] = answer.batch_checksum
            else:
                counts = False
                if isinstance(answer, ErrorCode) or behind:
                    case.reports[node] = answer if isinstance(answer, ErrorCode) else _NOT_APPLIED
        return counts

    def _next_ms(self) -> float:
        """The time of the next round if no response arrives before."""
        now_ms = self._now_ms()
        times = [at_ms for node, (_, at_ms) in self._retries.items() if node not in self._requests]
        times = [at_ms for at_ms in times if at_ms > now_ms] or [now_ms + _REMIND_MS]
        times.append(self._remind_ms)
        timeout_ms = self._config.unclean_recovery_timeout_ms
        if timeout_ms >= 0:
            ends = (case.since_ms + timeout_ms for case in self._cases.values())
            times += [end_ms for end_ms in ends if end_ms > now_ms]
        return min(times)

    # -- decisions

    def _try(self) -> dict[PartitionKey, Recovery]:
        """The recovery of each partition on the current reports."""
        image, policy, oldest_ms = self._image, self._policy(), self._now_ms() - _FRESH_MS
        return {
            key: recover(
                image,
                policy,
                image.leaderless[key],
                case.strategy,
                case.since(oldest_ms),
                batches=case.batches,
            )
            for key, case in self._cases.items()
        }

    def _compare(self, waiting: dict[PartitionKey, Recovery]) -> bool:
        """Take over the batches that have to be compared; returns true if there are any."""
        for key, recovery in waiting.items():
            self._cases[key].compare_at = recovery.compare_at
        return any(recovery.compare_at is not None for recovery in waiting.values())

    async def _elect(self, keys: Sequence[PartitionKey]) -> None:
        elected = await self._controller.change(partial(self._decide, keys))
        differing = [
            (key, recovery)
            for key, recovery in elected.items()
            if recovery.waiting_for or len({report.end for report in self._known(key)}) > 1
        ]
        log.info("unclean_recovery_done", partitions=len(elected), with_different_ends=len(differing))
        for key, recovery in differing:
            best = recovery.elected
            assert best is not None
            log.warning(
                "unclean_leader_elected",
                partition=self._name(key),
                leader=best.broker,
                strategy=self._cases[key].strategy.value,
                end_offset=best.end_offset,
                reports={report.broker: report.end for report in self._known(key)},
                not_known=dict(recovery.waiting_for),
            )

    def _decide(self, keys: Sequence[PartitionKey]) -> tuple[Sequence[Struct], dict[PartitionKey, Recovery]]:
        policy = self._policy()
        elected: dict[PartitionKey, Recovery] = {}
        for key in keys:
            case, partition = self._cases.get(key), self._image.leaderless.get(key)
            if case is None or partition is None or strategy_for(self._image, policy, partition) is None:
                continue
            recovery = recover(
                self._image, policy, partition, case.strategy, case.reports, batches=case.batches
            )
            if recovery.record is not None:
                elected[key] = recovery
        return [recovery.record for recovery in elected.values() if recovery.record is not None], elected

    def _known(self, key: PartitionKey) -> list[ReplicaReport]:
        return [r for r in self._cases[key].reports.values() if isinstance(r, ReplicaReport)]

    # -- the log

    def _log_waiting(self, waiting: dict[PartitionKey, Recovery]) -> None:
        """Log the missing reports at intervals, one event for all partitions with the same ones."""
        now_ms = self._now_ms()
        if now_ms < self._remind_ms:
            return
        late = {k: r for k, r in waiting.items() if now_ms - self._cases[k].since_ms >= _QUIET_MS}
        self._remind_ms = now_ms + (_REMIND_MS if late else _QUIET_MS)
        groups: dict[tuple[Strategy, tuple[tuple[int, str], ...]], list[PartitionKey]] = {}
        for key, recovery in late.items():
            reasons = tuple(sorted(recovery.waiting_for.items()))
            groups.setdefault((self._cases[key].strategy, reasons), []).append(key)
        for (strategy, reasons), keys in groups.items():
            log.warning(
                "unclean_recovery_waits",
                partitions=len(keys),
                first=self._name(keys[0]),
                strategy=strategy.value,
                waiting_for={f"broker {node}": why for node, why in reasons} or "a registered broker",
                hint=_HINT,
            )

    def _name(self, key: PartitionKey) -> str:
        topic = self._image.topics_by_id.get(key[0])
        return f"{key[0].hex() if topic is None else topic.name}-{key[1]}"
