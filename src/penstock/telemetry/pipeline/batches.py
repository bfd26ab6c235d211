"""One batch, from messages to committed tables: the order of effects that makes it exactly once.

    1  the batch gets its time and settings    kept, so that a second try has the same
    2  executors write files and next state    under new names: not yet part of anything
    3  each table is committed                 with (query id, batch id): a second time does nothing
    4  alerts are published                    a second time repeats them, with the same batch id
    5  the manifest is written                 from here on the batch is done

If the driver dies before step 5, the next one runs the batch again from the previous state. The result of a
batch depends only on its rows, on step 1 and on that state, so it is the same. The files of a
failed attempt belong to no table, and are removed.

`close` ends what was read so far: it closes every open window, in the same order of effects, between two
batches. A closing that was interrupted is completed before the next batch, from the same state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa

from penstock.jobs.ledger import Ledger, StateBroken
from penstock.jobs.storage import Store
from penstock.model.errors import PenstockError
from penstock.telemetry.pipeline.detectors import Alert, FleetDetectors, in_order
from penstock.telemetry.pipeline.detectors.features import reached
from penstock.telemetry.pipeline.names import ALERTS
from penstock.telemetry.pipeline.publish import Topics, alert_records
from penstock.telemetry.pipeline.shard import Counts
from penstock.telemetry.pipeline.state import Kept, Segment, files_of
from penstock.telemetry.pipeline.tables import TABLES, DataFile, Tables, timestamps, write_files
from penstock.telemetry.pipeline.tasks import ShardResult, ShardTask, run_on_spark
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.thresholds import Thresholds
from penstock.telemetry.workloads import WORKLOAD_LABELS

__all__ = ["BatchReport", "Batches", "PipelineEnded", "Settings"]

#: of the state: 1 had as many shards as tasks
_FORMAT: Final = 2


class PipelineEnded(PenstockError):
    """A batch was started after `Batches.close`; it has had no effect, and the next query runs it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a query treats samples."""

    thresholds: Thresholds
    #: tasks of a batch; may differ from run to run
    shards: int = 2
    #: how long a window stays open for samples that are late
    delay_ms: int = 30_000
    #: how far ahead of our clock a sample may be
    ahead_ms: int = 300_000
    #: which labels name a workload, in this order
    workload_labels: tuple[str, ...] = WORKLOAD_LABELS


@dataclass(frozen=True, slots=True)
class _Begun:
    """The settings of a batch's first attempt.

    Later attempts use the same, also if the settings have changed.
    """

    read_at_ms: int
    delay_ms: int
    ahead_ms: int
    thresholds: Thresholds
    workload_labels: tuple[str, ...] = WORKLOAD_LABELS


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The state after a batch."""

    query_id: str
    batch_id: int = -1
    #: the samples' time that the fleet has reached; never ahead of our own clock
    newest_ms: int = 0
    #: the files of the state, by the task that has written them
    parts: list[Kept] = field(default_factory=list)
    #: the file with the state of the rules that compare GPUs
    detectors: str | None = None
    #: how often `close` has closed all windows
    closings: int = 0

    @classmethod
    def read(cls, text: bytes) -> _Manifest:
        fields = json.loads(text)
        if fields.pop("format", 1) != _FORMAT:
            raise StateBroken(
                "the state is of an older version: end that query with the older version, and use new tables"
            )
        parts = [
            {name: [Segment(*each) for each in own] for name, own in part.items()}
            for part in fields.pop("parts")
        ]
        return cls(parts=parts, **fields)

    def text(self) -> bytes:
        fields = {"format": _FORMAT, **{name: getattr(self, name) for name in self.__slots__}}
        return json.dumps(fields, sort_keys=True).encode()

    def files(self) -> set[str]:
        found = files_of(self.parts)
        return found | {self.detectors} if self.detectors else found


class BatchReport(NamedTuple):
    """The report of a batch, for progress output and metrics."""

    batch_id: int
    counts: Counts
    watermark_ms: int
    read_at_ms: int
    alerts: list[Alert]
    #: how many files the batch has added, by table
    files: Mapping[str, int] = MappingProxyType({})


class Batches:
    """Runs batches of one query, one after the other. Give `process` to `foreachBatch`.

    `run_shards` is what knows Spark: messages are whatever it takes.
    """

    def __init__(
        self,
        tables: str,
        state: str,
        settings: Settings,
        topics: Topics | None = None,
        report: Callable[[BatchReport], None] = lambda report: None,
        clock: Callable[[], int] = now_ms,
        run_shards: Callable[[Any, ShardTask], list[ShardResult]] = run_on_spark,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self.tables = Tables(tables, storage_options)
        self._files = Store(tables, storage_options)
        self._state = Store(state, storage_options)
        self._ledger = Ledger(self._state)
        self._settings = settings
        self._topics = topics
        self._report = report
        self._clock = clock
        self._run_shards = run_shards
        #: held while a batch or a closing is under way
        self._lock = Lock()
        self._has_ended = False
        self._manifest = self._load()
        #: the state of rules that compare GPUs, and the file that has it, if both are the same
        self._peers: tuple[str | None, Any] = (None, None)
        #: the batch that an earlier try has begun and not finished
        self._interrupted = self._begun_next()

    def process(self, messages: Any, batch_id: int) -> None:
        """Run a batch; nothing happens if it was done before."""
        with self._lock:
            if self._has_ended:
                raise PipelineEnded(f"batch {batch_id} was not started: the pipeline has closed its windows")
            if self._state.exists(self._closing_path):
                self._close()
            self._process(messages, batch_id)

    def close(self) -> None:
        """Close every open window, after the batch that is under way; no batch can follow in this object.

        Samples that a later query reads for these windows are late, by GPU.
        """
        with self._lock:
            self._has_ended = True
            self._close()

    def _close(self) -> None:
        """Write the rollups of all windows that are open, whatever their width."""
        before = self._manifest
        interrupted = self._begun_next()
        if interrupted is not None:
            # Its samples would be late.
            raise StateBroken(f"batch {interrupted} was interrupted and must run before windows are closed")
        if not before.parts:
            return
        begun = self._begin(self._closing_path)
        results = self._run_shards(None, replace(self._task(before.batch_id, begun), closes=True))
        files = [file for result in results for file in result.files]
        self._commit(before.closings, files, f"{before.query_id}-closings")
        parts = [result.state for result in results]
        self._write_manifest(replace(before, parts=parts, closings=before.closings + 1))

    def must_repeat(self) -> bool:
        """Whether a batch that an earlier try has begun must still be run: windows stay open until then."""
        return self._interrupted is not None and self._manifest.batch_id < self._interrupted

    def _begun_next(self) -> int | None:
        """The batch after the last one that is done, if it was begun."""
        number = self._manifest.batch_id + 1
        return number if self._state.exists(f"begun-{number}.json") else None

    @property
    def _closing_path(self) -> str:
        return f"closing-{self._manifest.closings}.json"

    def _process(self, messages: Any, batch_id: int) -> None:
        before = self._manifest
        if not self._ledger.is_new(batch_id, before.batch_id):
            return
        begun = self._begin(f"begun-{batch_id}.json")
        task = self._task(batch_id, begun)
        results = self._run_shards(messages, task)
        counts, read = _total([result.counts for result in results]), sum(result.read for result in results)
        if counts.consumed != read or len(results) != self._settings.shards:
            raise StateBroken(f"{read} rows were read and {counts.consumed} are accounted for")
        detectors = self._detectors(begun.thresholds)
        signals = pa.concat_tables([result.signals for result in results]).unify_dictionaries()
        reached_ms = max(before.newest_ms, min(reached(signals), task.read_at_ms))
        own = [alert for result in results for alert in result.alerts]
        compared = detectors.advance(signals, own, before.newest_ms, reached_ms)
        alerts = in_order(own + compared)
        files = [file for result in results for file in result.files]
        report = BatchReport(batch_id, counts, task.watermark_ms, task.read_at_ms, alerts)
        self._commit(batch_id, files + self._write_own(report), before.query_id)
        if self._topics is not None and alerts:
            self._topics.send(ALERTS, alert_records(alerts, batch_id))
        self._finish(results, detectors, report, reached_ms)
        self._report(report._replace(files=dict(Counter(file.table for file in files))))

    def _task(self, batch_id: int, begun: _Begun) -> ShardTask:
        return ShardTask(
            tables=self._files,
            state=self._state,
            batch_id=batch_id,
            shards=self._settings.shards,
            watermark_ms=max(0, self._manifest.newest_ms - begun.delay_ms),
            read_at_ms=begun.read_at_ms,
            ahead_ms=begun.ahead_ms,
            before=self._manifest.parts,
            topics=self._topics,
            thresholds=begun.thresholds,
            workload_labels=begun.workload_labels,
        )

    def _write_own(self, report: BatchReport) -> list[DataFile]:
        """The files that the driver writes: they are small."""
        columns: dict[str, Any] = {
            name: [getattr(alert, name) for alert in report.alerts] for name in Alert._fields
        }
        columns |= {"at": timestamps(columns["at_ms"]), "since": timestamps(columns["since_ms"])}
        columns["batch_id"] = [report.batch_id] * len(report.alerts)
        schema = TABLES["alerts"]
        alerts = pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
        batch = {
            "read_at": timestamps([report.read_at_ms]),
            "batch_id": [report.batch_id],
            "watermark": timestamps([report.watermark_ms]),
            **{name: [value] for name, value in report.counts._asdict().items()},
        }
        schema = TABLES["batches"]
        batches = pa.table([batch[name] for name in schema.names], schema=schema)
        return [*write_files(self._files, "alerts", alerts), *write_files(self._files, "batches", batches)]

    def _commit(self, number: int, files: list[DataFile], transaction: str) -> None:
        self._ledger.check_held()
        for table in TABLES:
            own = [file for file in files if file.table == table]
            if own:
                self.tables.commit(table, own, transaction, number)

    def _finish(
        self, results: list[ShardResult], detectors: FleetDetectors, report: BatchReport, reached_ms: int
    ) -> None:
        before = self._manifest
        remembered = f"{report.batch_id}-{uuid4().hex}-detectors.arrow"
        self._state.write(remembered, _compressed(detectors.peers.to_table()))
        after = replace(
            before,
            batch_id=report.batch_id,
            newest_ms=reached_ms,
            parts=[result.state for result in results],
            detectors=remembered,
        )
        self._write_manifest(after)
        self._peers = (remembered, detectors.peers)

    def _write_manifest(self, after: _Manifest) -> None:
        needed = after.files() | {f"begun-{after.batch_id + 1}.json"}
        self._ledger.finish(after.batch_id, after.text(), needed)
        self._manifest = after

    def _detectors(self, thresholds: Thresholds) -> FleetDetectors:
        """The rules with the state before the batch. A batch that fails leaves none in memory."""
        path, (known, peers) = self._manifest.detectors, self._peers
        self._peers = (None, None)
        if path is None:
            return FleetDetectors(thresholds)
        return FleetDetectors(thresholds, peers if known == path else self._state.read_table(path))

    def _begin(self, path: str) -> _Begun:
        def make() -> bytes:
            settings = self._settings
            return msgspec.json.encode(
                _Begun(
                    self._clock(),
                    settings.delay_ms,
                    settings.ahead_ms,
                    settings.thresholds,
                    settings.workload_labels,
                )
            )

        try:
            return msgspec.json.decode(self._ledger.once(path, make), type=_Begun)
        except msgspec.ValidationError as error:
            raise StateBroken(f"{path} was written by another version, which must end it: {error}") from error

    def _load(self) -> _Manifest:
        newest = self._ledger.newest()
        if newest is not None:
            return _Manifest.read(newest)
        first = _Manifest(uuid4().hex)
        # The query's id must be known before anything is committed under it.
        self._ledger.begin(first.batch_id, first.text())
        return first


def _compressed(table: Any) -> Any:
    """A file of a table: most GPUs have no alerts, and most texts repeat."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _total(parts: list[Counts]) -> Counts:
    sums = [sum(column) for column in zip(*parts, strict=True)]
    return Counts(*sums)._replace(newest_ms=max(part.newest_ms for part in parts))
