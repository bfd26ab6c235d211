"""Making places for partitions, opening their logs, setting them aside: disk work, for worker threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.stored_partitions import log_quarantined
from penstock.metadata.image import TopicImage
from penstock.model.errors import StorageError
from penstock.ports import Clock, Rng, Workers
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, PartitionRemoval, StoredPartition
from penstock.storage.folders import Removals
from penstock.storage.log import Log

__all__ = ["WantedLog", "create_partitions", "load_logs", "log_findings", "place_logs", "set_aside"]

log = get_logger("partitions")
#: worker threads that make new partitions at a time
_THREADS: Final = 4


class WantedLog(NamedTuple):
    """A partition to host."""

    topic: TopicImage
    partition: int
    config: LogConfig


def place_logs(
    counts: dict[DataDirectory, int], wanted: Iterable[WantedLog]
) -> dict[DataDirectory, list[WantedLog]]:
    """Each log in the directory that has the fewest; `counts` has how many each has, and grows."""
    placed: dict[DataDirectory, list[WantedLog]] = {}
    for wanted_log in wanted:
        directory = min(counts, key=lambda d: counts[d])
        counts[directory] += 1
        placed.setdefault(directory, []).append(wanted_log)
    return placed


async def create_partitions(
    workers: Workers, directory: DataDirectory, partitions: Iterable[StoredPartition]
) -> None:
    """Make places for logs, durably; StorageError if one of them cannot be made.

    Each topic waits for the disk. Several threads wait at the same time, which takes a disk hardly longer.
    """
    topics: dict[str, list[StoredPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    shares = list(topics.values())
    made = await asyncio.gather(
        *(
            workers.in_thread(directory.create_partitions, list(chain(*shares[thread::_THREADS])))
            for thread in range(min(_THREADS, len(shares)))
        ),
        return_exceptions=True,
    )
    for error in made:
        if error is not None:
            raise error


def load_logs(
    directory: DataDirectory, wanted: Sequence[WantedLog], clock: Clock, rng: Rng
) -> list[Log | StorageError]:
    """Open logs, each or the reason why not."""
    loaded: list[Log | StorageError] = []
    for topic, index, config in wanted:
        try:
            opened = directory.load_log(topic.name, index, config, clock, rng)
            if opened.end_offset > opened.recovery_point:
                # What readers may see must be on the disk before they do; later appends see to themselves.
                plan = opened.flush_plan()
                plan.sync()
                opened.flushed(plan)
        except StorageError as e:
            loaded.append(e)
        else:
            loaded.append(opened)
    return loaded


def log_findings(topic: str, partition: int, opened: Log) -> None:
    """Log what opening a log has found: damage, and files that are not the log's."""
    recovery = opened.recovery
    if recovery.foreign:
        log.warning("foreign_files_ignored", directory=opened.path, names=recovery.foreign)
    if recovery.corruption:
        ranges = [str(damage) for damage in recovery.corruption]
        log.error("corruption_found", topic=topic, partition=partition, ranges=ranges)


async def set_aside(
    workers: Workers,
    directory: DataDirectory,
    removed: Sequence[tuple[str, list[int], PartitionRemoval]],
    doubt: str | None,
) -> Removals | None:
    """Free the places of partitions, each with its topic and indexes.

    Returns what is to be deleted later. Where there is a `doubt`, the logs are quarantined instead.
    """
    if doubt is None:
        removal = Removals(removal for *_, removal in removed)
        for error in await workers.in_thread(removal.set_aside):
            log.error("topic_not_removed", directory=directory.path, error=str(error))
        return removal
    for name, indexes, _ in removed:
        try:
            entry = await workers.in_thread(directory.quarantine_partitions, name, indexes, doubt)
            log_quarantined(directory, entry)
        except StorageError as e:
            log.error("topic_not_removed", topic=name, directory=directory.path, error=str(e))
    return None
