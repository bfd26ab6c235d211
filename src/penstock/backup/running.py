"""A backup that runs: a cut at each interval, the removal of old cuts, verifications, and their metrics.

A cut that fails is reported, and the next one is tried. A verification reads the newest cut while further
ones are taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from penstock.archive.cuts import Cut
from penstock.archive.errors import ArchiveError
from penstock.archive.names import CUTS
from penstock.archive.sweeping import find_cut, list_cuts, prune_cuts
from penstock.archive.verifying import PartitionVerification, verify_cut
from penstock.backup.source import SourceFailed
from penstock.backup.taking import Backup
from penstock.broker.monitoring.documents import ALIVE, LIVENESS, Document, plain_text
from penstock.broker.monitoring.http_server import HttpServer, Policy
from penstock.model.config.listeners import is_loopback
from penstock.observability.exposition import Format, Page
from penstock.observability.http import Request, accepted_format
from penstock.observability.metrics import BACKUP_METRICS
from penstock.ports import Clock, ObjectStore

__all__ = ["BackupMetrics", "RunningBackup", "Schedule", "serve_metrics"]

_CONNECTIONS: Final = 16
#: beyond three intervals of cuts, and two of verifications: as the alert rules PenstockBackupLate and
#: PenstockBackupUnverified have it
_LATE_S: Final = 60.0
_UNVERIFIED_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Intervals and ages; None for one cut, for cuts that are kept, and for no verification."""

    every_ms: int | None = None
    keep_ms: int | None = None
    verify_every_ms: int | None = None


@dataclass(slots=True)
class BackupMetrics:
    """What `/metrics` shows. None is not known, and has no sample."""

    start_ms: int
    schedule: Schedule
    newest_cut_ms: int | None = None
    cuts: int = 0
    failures: int = 0
    cut_duration_s: float | None = None
    verified_ms: int | None = None
    unrestorable: int | None = None
    verification_failures: int = 0

    def page(self, text_format: Format) -> Document:
        page = Page(BACKUP_METRICS)
        for name, value in (
            ("start_time_seconds", _seconds(self.start_ms)),
            ("interval_seconds", _seconds(self.schedule.every_ms)),
            ("newest_cut_timestamp_seconds", _seconds(self.newest_cut_ms)),
            ("cuts_total", self.cuts),
            ("failures_total", self.failures),
            ("cut_duration_seconds", self.cut_duration_s),
            ("verification_interval_seconds", _seconds(self.schedule.verify_every_ms)),
            ("verified_timestamp_seconds", _seconds(self.verified_ms)),
            ("unrestorable_partitions", self.unrestorable),
            ("verification_failures_total", self.verification_failures),
        ):
            if value is not None:
                page.set(f"penstock_backup_{name}", value)
        return Document(HTTPStatus.OK, text_format.value, list(page.render(text_format)))

    def status(self, now_ms: int) -> Document:
        """What the console shows, as JSON. None is not known."""
        cut_age_s, verified_age_s = _age_s(self.newest_cut_ms, now_ms), _age_s(self.verified_ms, now_ms)
        every_s, verify_every_s = _seconds(self.schedule.every_ms), _seconds(self.schedule.verify_every_ms)
        running_s = (now_ms - self.start_ms) / 1000
        shown = {
            "interval_s": every_s,
            "newest_cut_age_s": cut_age_s,
            "is_late": every_s is not None
            and (running_s if cut_age_s is None else cut_age_s) > 3 * every_s + _LATE_S,
            "failures": self.failures,
            "verification_interval_s": verify_every_s,
            "verified_age_s": verified_age_s,
            "is_unverified": verify_every_s is not None
            and (running_s if verified_age_s is None else verified_age_s)
            > 2 * verify_every_s + _UNVERIFIED_S,
            "unrestorable_partitions": self.unrestorable,
        }
        return Document(HTTPStatus.OK, "application/json", [msgspec.json.encode(shown)])


def _age_s(time_ms: int | None, now_ms: int) -> float | None:
    return None if time_ms is None else max(0.0, (now_ms - time_ms) / 1000)


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


async def serve_metrics(metrics: BackupMetrics, clock: Clock, host: str, port: int) -> tuple[HttpServer, int]:
    """Serve `/metrics`, `/status` and `/healthz`; the server, which its owner stops, and its port."""

    async def get(request: Request) -> Document:
        if request.path == LIVENESS:
            return ALIVE
        if request.path == "/metrics":
            return metrics.page(accepted_format(request.headers.get("accept", "")))
        if request.path == "/status":
            return metrics.status(clock.now_ms())
        return plain_text(HTTPStatus.NOT_FOUND, f"unknown path; there are {LIVENESS}, /metrics, /status\n")

    policy = Policy(connections_max=_CONNECTIONS, token=None, local_only=is_loopback(host))
    server = HttpServer(get, policy)
    return server, await server.start(host, port)


class RunningBackup:
    """Takes cuts with `backup`. `on_cut` and `report` tell the user."""

    def __init__(
        self,
        backup: Backup,
        store: ObjectStore,
        clock: Clock,
        metrics: BackupMetrics,
        on_cut: Callable[[str, Cut, float], None],
        report: Callable[[str], None],
    ) -> None:
        self._backup = backup
        self._store = store
        self._clock = clock
        self.metrics = metrics
        self._schedule = metrics.schedule
        self._on_cut = on_cut
        self._report = report
        self._verification: asyncio.Task[None] | None = None
        self._verify_at = 0.0

    async def run(self) -> None:
        """Take one cut, or one at each interval until this is cancelled."""
        every_ms = self._schedule.every_ms
        try:
            if every_ms is None:
                await self._take()
                return
            await self._find_newest()
            while True:
                began = self._clock.monotonic()
                try:
                    await self._take()
                except (ArchiveError, SourceFailed, OSError) as e:
                    self.metrics.failures += 1
                    self._report(f"no cut was taken: {e}")
                self._verify_if_due()
                await asyncio.sleep(max(0.0, began + every_ms / 1000 - self._clock.monotonic()))
        finally:
            if self._verification is not None:
                self._verification.cancel()
                await asyncio.gather(self._verification, return_exceptions=True)

    async def _find_newest(self) -> None:
        """After a restart, the age of the newest cut is known before another one is taken."""
        try:
            self.metrics.newest_cut_ms = max((await list_cuts(self._store)).values(), default=None)
        except (ArchiveError, OSError) as e:
            self._report(f"the cuts cannot be listed: {e}")

    async def _take(self) -> None:
        began = self._clock.monotonic()
        name, cut = await self._backup.take()
        metrics, duration_s = self.metrics, self._clock.monotonic() - began
        metrics.cuts, metrics.newest_cut_ms, metrics.cut_duration_s = (
            metrics.cuts + 1,
            cut.time_ms,
            duration_s,
        )
        self._on_cut(name, cut, duration_s)
        if self._schedule.keep_ms is not None:
            written_ms = {each.name: each.modified_ms for each in await self._store.listing(CUTS)}
            # One of both clocks may be wrong, or may have been set.
            now_ms = min(cut.time_ms, written_ms.get(name, 0))
            await prune_cuts(self._store, now_ms - self._schedule.keep_ms)

    def _verify_if_due(self) -> None:
        every_ms, now = self._schedule.verify_every_ms, self._clock.monotonic()
        is_running = self._verification is not None and not self._verification.done()
        if every_ms is not None and not is_running and now >= self._verify_at:
            self._verify_at = now + every_ms / 1000
            self._verification = asyncio.get_running_loop().create_task(self._verify())

    async def _verify(self) -> None:
        metrics = self.metrics
        try:
            _, cut = await find_cut(self._store, None)
            found = await verify_cut(self._store, cut)
        except (ArchiveError, OSError) as e:
            metrics.verification_failures += 1
            self._verify_at = 0.0  # tried again after the next cut
            self._report(f"the archive was not verified: {e}")
            return
        damaged = [each for each in found if each.verified is None]
        metrics.unrestorable, metrics.verified_ms = len(damaged), self._clock.now_ms()
        for each in damaged:
            self._report(_problem(each))


def _problem(found: PartitionVerification) -> str:
    return f"{found.topic}-{found.partition} cannot be restored from the newest cut: {found.problem}"
