"""Opening the logs of partitions: disk work, for a worker thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.logs import get_logger
from penstock.metadata.image import TopicImage
from penstock.model.errors import StorageError
from penstock.ports import Clock, Rng
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory
from penstock.storage.log import Log

__all__ = ["WantedLog", "load_logs", "log_findings"]

log = get_logger("partitions")


class WantedLog(NamedTuple):
    """A partition to host."""

    topic: TopicImage
    partition: int
    config: LogConfig


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
