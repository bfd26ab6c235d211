"""What the readers get from archives: the offsets and tasks of a backup, and the rows of archived parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from penstock.archive.errors import ArchiveError
from penstock.model.errors import CorruptMessage
from penstock.model.ids import TopicPartition
from penstock.reading.offsets import EARLIEST, LATEST, Offsets
from penstock.reading.planning import OffsetRange
from penstock.reading.selection import Selection
from penstock.records.columnar import Wanted, decode
from penstock.scan.blocking import run, scan
from penstock.scan.moments import Moment, open_moment
from penstock.scan.parts import Part
from penstock.spark.archive_options import ArchiveOptions
from penstock.spark.errors import DataLost, ReadingError, WrongOption

__all__ = ["Backup", "RangeTask", "archive_errors", "archived_records"]


@dataclass(frozen=True)
class RangeTask(OffsetRange, InputPartition):
    """A range as a task of Spark, which takes no other class."""

    #: what is read from an archive; the rest comes from brokers
    part: Part | None = None


@contextmanager
def archive_errors(what: str) -> Iterator[None]:
    """Errors of an archive, or of its store, as one line."""
    try:
        yield
    except ArchiveError as e:
        raise ReadingError(f"{what}: {e}") from e
    except OSError as e:
        raise ReadingError(f"{what}: {e}: check the address, the credentials and the network") from e


def archived_records(task: OffsetRange, part: Part, wanted: Wanted, *, committed: bool) -> Iterator[Any]:
    """The columns of `records.columnar.decode`, of the archived part of a task."""
    what = f"the archive of {task.topic}-{task.partition}"
    with archive_errors(what):
        try:
            for data, batches in scan(part, committed=committed, since_ms=max(0, wanted.times.start)):
                yield from decode(data, batches, wanted)
        except CorruptMessage as e:
            raise ReadingError(f"{what}: {e}") from e


class Backup:
    """A cut of a backup, in the place of a cluster."""

    def __init__(self, options: ArchiveOptions) -> None:
        self._where = f"the backup {options.place.address}"
        with archive_errors(self._where):
            self._moment: Moment = run(open_moment(options.place, options.moment_ms))

    def selected(self, selection: Selection) -> list[TopicPartition]:
        """The partitions that a query reads."""
        there = self._moment.partitions
        if selection.pattern is not None:
            pattern = re.compile(selection.pattern)
            return [each for each in there if pattern.search(each.topic)]
        topics = {each.topic for each in there}
        missing: list[object] = [topic for topic in selection.topics if topic not in topics]
        missing += [each for each in selection.partitions if each not in there]
        if missing:
            raise WrongOption(f"{self._where} has no {', '.join(map(str, missing))} at this time")
        if selection.partitions:
            return list(selection.partitions)
        return [each for each in there if each.topic in selection.topics]

    def list_offsets(self, positions: Mapping[TopicPartition, int]) -> Offsets:
        """As a broker that serves the backup would answer ListOffsets."""
        times = {partition: at for partition, at in positions.items() if at >= 0}
        with archive_errors(self._where):
            found = run(self._moment.offsets_of_times(times)) if times else {}
        for partition, at in positions.items():
            if at == EARLIEST:
                found[partition] = self._moment.log_start(partition)
            elif at == LATEST:
                found[partition] = self._moment.log_end(partition)
        return found

    def tasks(self, ranges: Iterable[OffsetRange], *, fail_on_data_loss: bool) -> list[RangeTask]:
        return [
            RangeTask(each.topic, each.partition, each.start, each.stop, self._part(each))
            for each in self._kept(ranges, fail_on_data_loss)
        ]

    def _part(self, wanted: OffsetRange) -> Part:
        return self._moment.part(wanted.whose, wanted.start, wanted.stop)

    def _kept(self, ranges: Iterable[OffsetRange], fail_on_data_loss: bool) -> Iterator[OffsetRange]:
        for each in ranges:
            start = self._moment.log_start(each.whose)
            if each.start >= start:
                yield each
                continue
            if fail_on_data_loss:
                raise DataLost(
                    f"{each.topic}-{each.partition}: offsets {each.start} to {min(start, each.stop)} are not "
                    f"in the backup: its log starts at {start}. Set failOnDataLoss=false to skip them"
                )
            if start < each.stop:
                yield OffsetRange(each.topic, each.partition, start, each.stop)
