"""Elections: how a change of a partition begins, and giving partitions back to their preferred leaders.

The rules of an election are in `partition_change`; `begin_change` starts one from the image and the policy.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.metadata.image import ClusterImage, PartitionImage
from penstock.metadata.partition_change import Election, PartitionChange
from penstock.metadata.policy import Policy, min_isr
from penstock.wire.schema import Struct

__all__ = ["MOST_ELECTIONS", "balance_leaders", "begin_change", "lead_elsewhere"]

#: the most elections of one decision, so that the next decision does not wait long
MOST_ELECTIONS: Final = 1000
_NOBODY: Final = -1


def begin_change(
    image: ClusterImage,
    policy: Policy,
    partition: PartitionImage,
    *,
    leaving: int = _NOBODY,
    joining: int = _NOBODY,
) -> PartitionChange:
    """A change that wants what is; `leaving` may not lead, `joining` may though it is still fenced."""
    name = image.topics_by_id[partition.topic_id].name

    def acceptable(node: int) -> bool:
        broker = image.brokers.get(node)
        return node != leaving and broker is not None and (node == joining or broker.active)

    change = PartitionChange(partition, acceptable, partial(min_isr, image, name))
    change.avoided = policy.clocks_off
    return change


def balance_leaders(image: ClusterImage, policy: Policy, percentage: int) -> list[Struct]:
    """Give partitions back to their preferred leaders.

    Only those of brokers that lead too few: more than `percentage` of the partitions that prefer them are led
    by others (`leader.imbalance.per.broker.percentage`). At most `MOST_ELECTIONS` at a time. The
    cost depends on the partitions that others lead, not on those of the cluster.
    """
    records: list[Struct] = []
    for node, partitions in sorted(image.astray.items()):
        if len(partitions) * 100 <= percentage * image.preferred[node]:
            continue
        for partition in partitions.values():
            change = begin_change(image, policy, partition)
            change.election = Election.PREFERRED
            record = change.build()
            if record is not None and record.leader == node:
                records.append(record)
            if len(records) == MOST_ELECTIONS:
                return records
    return records


def lead_elsewhere(image: ClusterImage, policy: Policy, broker_id: int) -> list[Struct]:
    """Move leaderships from a broker whose clock is wrong to in-sync replicas whose clocks are right.

    The broker stays in the ISR. Returns at most `MOST_ELECTIONS` records; the rest follows at the next
    heartbeat.
    """
    records: list[Struct] = []
    for partition in image.partitions_on(broker_id):
        if len(records) == MOST_ELECTIONS:
            break
        if partition.leader == broker_id and len(partition.isr) > 1:
            change = begin_change(image, policy, partition)
            change.election = Election.ELSEWHERE
            record = change.build()
            if record is not None:
                records.append(record)
    return records
