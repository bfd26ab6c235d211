"""Expiry beside a query: proofs run as tasks of its session, one for each day, and the driver commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, Counter, Gauge

from penstock.jobs.storage import Store
from penstock.jobs.supervision import reason_of
from penstock.telemetry.expiry.proof import prove
from penstock.telemetry.expiry.removal import days_of, days_with_strays, remove_days
from penstock.telemetry.expiry.rule import Proof, cutoff_day, expired
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.queries.reader import TableReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.telemetry.pipeline.batches import BatchReport

__all__ = ["SampleExpiry", "prover"]

_log: Final = logging.getLogger(__name__)
_RETRY_S: Final = 3600.0
#: of one round: the first round of a table with years of samples has many
_DAYS_MAX: Final = 64
_RESULT: Final = "day STRING, samples BIGINT, difference STRING"
_PROOF: Final = pa.schema([("day", pa.string()), ("samples", pa.int64()), ("difference", pa.string())])
_MIXED: Final = "its files have samples of other days, which would go with them"
Prove = Callable[[Sequence[str]], list[Proof]]


def prover(spark: SparkSession, tables: str, storage_options: dict[str, str] | None) -> Prove:
    """Proofs of days as tasks of a session, on at most a quarter of its slots."""

    def prove_days(days: Sequence[str]) -> list[Proof]:
        named = list(days)

        def proven(batches: Iterator[Any]) -> Iterator[Any]:
            reader = TableReader(tables, storage_options=storage_options)
            for batch in batches:
                found = [prove(reader, named[number.as_py()])._asdict() for number in batch["id"]]
                yield pa.RecordBatch.from_pylist(found, _PROOF)

        slots = max(1, spark.sparkContext.defaultParallelism // 4)
        numbers = spark.range(0, len(named), 1, min(slots, len(named)))
        rows = numbers.mapInArrow(proven, _RESULT).toArrow().to_pylist()
        return sorted(Proof(**row) for row in rows)

    return prove_days


class SampleExpiry:
    """Removes days of samples that are older than `keep_ms`, once a day and after each start.

    A day whose proof fails stays, with a warning, until a later proof succeeds; it is tried again after an
    hour, as is what failed otherwise. Runs in a thread of its own, so that batches do not wait.
    """

    def __init__(
        self,
        tables: str,
        keep_ms: int,
        prove_days: Prove,
        registry: CollectorRegistry,
        storage_options: dict[str, str] | None = None,
        clock: Callable[[], int] = now_ms,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._tables = Tables(tables, storage_options)
        self._place = Store(tables, storage_options)
        self._keep_ms = keep_ms
        self._prove = prove_days
        self._clock = clock
        self._say = say
        self._worker = ThreadPoolExecutor(1, "expiry")
        self._running: Future[None] | None = None
        #: the cutoff up to which everything is done
        self._done = ""
        self._tried_at = -_RETRY_S
        self._rows = Counter(
            "penstock_pipeline_expired_samples", "Samples removed by --keep-samples.", registry=registry
        )
        self._unproven = Gauge(
            "penstock_pipeline_unproven_days",
            "Days that are older than --keep-samples, and stay because rollups lack samples of them.",
            registry=registry,
        )

    def __call__(self, report: BatchReport) -> None:
        """Look after a batch whether another day has expired."""
        cutoff = cutoff_day(report.watermark_ms, self._clock(), self._keep_ms)
        is_soon = time.monotonic() - self._tried_at < _RETRY_S
        if cutoff <= self._done or is_soon or (self._running is not None and not self._running.done()):
            return
        self._tried_at = time.monotonic()
        self._running = self._worker.submit(self.run, cutoff)

    def run(self, cutoff: str) -> None:
        """Remove the proven days before a cutoff. A failure is logged, and tried again later."""
        try:
            self._run(cutoff)
        except Exception as error:  # noqa: BLE001 - nobody else looks at what this thread raises
            _log.warning("expiry of samples failed: %s", reason_of(error))

    def _run(self, cutoff: str) -> None:
        unproven: list[Proof] = []
        tried = ""
        # The table is opened before its days are proven: rows that come after the proof are in a later
        # version, and stay.
        while (samples := self._tables.find("samples")) is not None:
            days = [day for day in expired(days_of(samples), cutoff) if day > tried][:_DAYS_MAX]
            if not days:
                break
            tried = days[-1]
            proofs = self._prove(days)
            assert [proof.day for proof in proofs] == days, f"proofs of {proofs} for {days}"
            mixed = days_with_strays(samples)
            proofs = [each._replace(difference=_MIXED) if each.day in mixed else each for each in proofs]
            self._remove(samples, [proof for proof in proofs if proof.difference is None])
            unproven += [proof for proof in proofs if proof.difference is not None]
        for proof in unproven:
            _log.warning("samples of %s stay: %s", proof.day, proof.difference)
        self._unproven.set(len(unproven))
        if not unproven:
            self._done = cutoff
            # Another day may begin within the hour.
            self._tried_at = -_RETRY_S

    def _remove(self, samples: DeltaTable, proven: Sequence[Proof]) -> None:
        if not proven:
            return
        days = [proof.day for proof in proven]
        files = remove_days(self._place, samples, days)
        rows = sum(proof.samples for proof in proven)
        self._rows.inc(rows)
        self._say(f"{rows:,} samples of {len(days)} days up to {days[-1]} have expired ({files:,} files)")

    def close(self) -> None:
        """Wait for the round that is under way."""
        self._worker.shutdown()
