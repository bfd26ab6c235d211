"""Asking a log what it knows without waiting for a disk on the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.broker.replica.partition import Partition
from penstock.ports import Workers
from penstock.storage.scan import ColdPages

__all__ = ["ask_log"]

T = TypeVar("T")


async def ask_log(partition: Partition, workers: Workers, question: Callable[[], T]) -> T:
    """What `question` answers from memory alone; what it lacks (`ColdPages`) a worker thread brings first."""
    while True:
        try:
            return question()
        except ColdPages as cold:
            try:
                await workers.in_thread(cold.warm)
            except OSError as e:
                raise partition.read_failed(e) from e
