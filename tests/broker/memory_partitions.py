"""Partitions in memory, without a broker."""

from __future__ import annotations

from penstock.broker.base.metrics import TopicStats
from penstock.broker.base.system_ports import SystemClock, SystemRng
from penstock.broker.base.workers import SystemWorkers
from penstock.broker.replica.flusher import Flusher, FlushPolicy
from penstock.broker.replica.partition import Partition
from penstock.model.ids import TopicId
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory
from penstock.storage.memory import MemoryFiles
from tests.broker.requests import batch_of

__all__ = ["batch", "led", "partition_of"]


def partition_of(topic: str = "t", policy: FlushPolicy = "os") -> Partition:
    """A partition in memory, which neither leads nor follows."""
    directory = DataDirectory.open(MemoryFiles(), "/data", cluster_id=None, node_id=1, rng=SystemRng())
    log = directory.open_log(topic, 0, LogConfig(), SystemClock())
    flusher = Flusher(directory, policy, 1.0, SystemWorkers(lambda: 1))
    return Partition(topic, TopicId(bytes(16)), 0, log, directory, flusher, {}, TopicStats(topic))


def led(topic: str = "t", leader_epoch: int = 3) -> Partition:
    partition = partition_of(topic)
    partition.lead(leader_epoch, None)
    return partition


def batch(count: int = 1) -> memoryview:
    return memoryview(bytearray(batch_of([b"value"] * count)))
