"""Faults of what is beside the brokers: the source of a link, the archive, the backup. Health shows none."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from alarms.cluster import TIERED, Cluster
from alarms.fault import Fault

__all__ = ["NEIGHBOUR_FAULTS"]

_TIMEOUT_S: Final = 30.0
#: until brokers have copied what was just written, and removed it from their disks
_FREED_S: Final = 120.0


def _roll_archive_back(cluster: Cluster) -> None:
    """Take the archive back to before records that only it has."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends", "log_level": 0})
    _, end = consumer.get_watermark_offsets(TopicPartition(TIERED, 0), _TIMEOUT_S)
    consumer.close()
    cluster.neighbours.remember_archive()
    deadline = time.monotonic() + _FREED_S
    while cluster.tiered_start() <= end:
        assert time.monotonic() < deadline, "the brokers free no disk"
        time.sleep(0.2)
    cluster.neighbours.roll_archive_back()


NEIGHBOUR_FAULTS: Final = (
    Fault(
        "topic created again at the source of a link",
        ("PenstockLinkDiverged",),
        lambda cluster: cluster.neighbours.create_again(),
        lambda cluster: cluster.neighbours.fail_over(),
    ),
    Fault(
        "records that are gone before a link mirrors them",
        ("PenstockLinkMissed",),
        lambda cluster: cluster.neighbours.lose_unmirrored(),
        lambda cluster: None,
    ),
    Fault(
        "archive that cannot be written",
        ("PenstockArchiveUnavailable", "PenstockTieringErrors", "PenstockTieringLag"),
        lambda cluster: cluster.neighbours.block_archive(),
        lambda cluster: cluster.neighbours.unblock_archive(),
    ),
    Fault(
        "archive that was rolled back",
        ("PenstockTieringContradicted",),
        _roll_archive_back,
        lambda cluster: cluster.neighbours.bring_archive_back(),
    ),
    Fault(
        "backup that cannot write",
        ("PenstockBackupLate", "PenstockBackupUnverified"),
        lambda cluster: cluster.neighbours.block_backup(),
        lambda cluster: cluster.neighbours.unblock_backup(),
    ),
    Fault(
        "damaged backup",
        ("PenstockBackupDamaged",),
        lambda cluster: cluster.neighbours.damage_backup(),
        lambda cluster: cluster.neighbours.damage_backup(),
    ),
    Fault(
        "dead backup",
        ("PenstockBackupDown",),
        lambda cluster: cluster.neighbours.backup.kill(),
        lambda cluster: cluster.neighbours.backup.launch(),
    ),
    Fault(
        "source of a link that is gone",
        ("PenstockLinkDown", "PenstockLinkLag"),
        lambda cluster: cluster.neighbours.source.kill(),
        lambda cluster: cluster.neighbours.source.launch(),
    ),
)
