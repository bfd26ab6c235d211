"""Changes of many partitions when the replicas of one broker must not lead, or are no longer in sync.

Each function returns the records in slices: a broker may have tens of thousands of replicas. The image must
not change between two slices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.metadata.election import begin_change
from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from penstock.metadata.partition_change import Election
from penstock.metadata.policy import Policy
from penstock.model.ids import TopicId
from penstock.model.steps import Steps, is_slice_over
from penstock.wire.apis.broker_heartbeat import TopicWithoutRoom, UncleanTopic
from penstock.wire.schema import Struct

__all__ = ["exclude_unclean", "hand_over", "withdraw"]


def withdraw(
    image: ClusterImage,
    policy: Policy,
    broker_id: int,
    *,
    clean: bool = True,
    emptied: bool = False,
    even_if_last: bool = True,
) -> Steps[list[Struct]]:
    """Take a broker out of the ISRs, and out of the eligible leaders where it may have lost records.

    One that is `emptied` has lost all, or may have: it is no longer the last known leader, either.
    """
    records: list[Struct] = []
    for partition in image.partitions_on(broker_id):
        has_led = emptied and len(partition.replicas) > 1 and broker_id in partition.last_known_leader
        if broker_id not in partition.isr and (clean or broker_id not in partition.elr) and not has_led:
            continue
        change = begin_change(image, policy, partition, leaving=broker_id)
        if not even_if_last:
            # The replica may be in a healthy directory: no unclean election for it.
            change.election = Election.ONLINE
        change.isr = [node for node in partition.isr if node != broker_id]
        if not clean:
            change.unclean_shutdown = (broker_id,)
        if emptied and len(partition.replicas) > 1:
            change.emptied = (broker_id,)
        record = change.build()
        if record is not None and (even_if_last or record.leader != NO_LEADER):
            records.append(record)
            if is_slice_over(len(records)):
                yield
    return records


def hand_over(
    image: ClusterImage, policy: Policy, broker_id: int, without_room: Collection[TopicWithoutRoom]
) -> Steps[list[Struct]]:
    """Remove replicas on a full disk from leadership and ISR, if another replica is in sync.

    If no other is, it stays leader: its records can be read. It has lost nothing, so it stays eligible.
    """
    records: list[Struct] = []
    for partition in _listed(image, without_room):
        if broker_id not in partition.isr or len(partition.isr) == 1:
            continue
        change = begin_change(image, policy, partition, leaving=broker_id)
        change.election = Election.ONLINE
        change.isr = [node for node in partition.isr if node != broker_id]
        record = change.build()
        if record is not None and record.leader != NO_LEADER:
            records.append(record)
            if is_slice_over(len(records)):
                yield
    return records


def exclude_unclean(
    image: ClusterImage, policy: Policy, broker_id: int, unclean: Collection[UncleanTopic]
) -> Steps[list[Struct]]:
    """Take replicas that may lack committed records out of the ISR, the ELR and the last known leader.

    A replica that is alone in the ISR of a broker that is up leads on where no other replica is eligible: the
    other replicas were out of sync and have less. An only replica stays the last known leader.
    """
    records: list[Struct] = []
    for partition in _listed(image, unclean):
        has_led = len(partition.replicas) > 1 and broker_id in partition.last_known_leader
        if broker_id not in partition.isr and broker_id not in partition.elr and not has_led:
            continue
        change = begin_change(image, policy, partition, leaving=broker_id)
        change.election = Election.ONLINE
        change.isr = [node for node in partition.isr if node != broker_id]
        change.unclean_shutdown = (broker_id,)
        if len(partition.replicas) > 1:
            change.emptied = (broker_id,)
        record = change.build()
        if record is not None and (broker_id not in partition.isr or record.leader != NO_LEADER):
            records.append(record)
            if is_slice_over(len(records)):
                yield
    return records


def _listed(
    image: ClusterImage, topics: Collection[TopicWithoutRoom] | Collection[UncleanTopic]
) -> Iterator[PartitionImage]:
    """The partitions that a heartbeat lists, as far as the image has them."""
    for topic in topics:
        known = image.topics_by_id.get(TopicId(topic.topic_id))
        if known is not None:
            yield from (known.partitions[index] for index in topic.partitions if index in known.partitions)
