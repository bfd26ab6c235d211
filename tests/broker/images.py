"""Cluster images for unit tests, from metadata records."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metadata.image import ClusterImage
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from penstock.wire.schema import Struct

__all__ = ["TOPIC_ID", "image_of", "partition_record", "registration"]

TOPIC_ID = TopicId(b"\1" * 16)


def image_of(*records: Struct, topic: str = "t") -> ClusterImage:
    """An image with one topic (`TOPIC_ID`) and the given records."""
    image = ClusterImage()
    for offset, record in enumerate((TopicRecord(name=topic, topic_id=TOPIC_ID), *records)):
        image.apply(record, offset)
    return image


def partition_record(
    index: int = 0,
    *,
    replicas: Sequence[int] = (1, 2, 3),
    isr: Sequence[int] | None = None,
    leader: int = 1,
    leader_epoch: int = 0,
    adding: Sequence[int] = (),
    origin: int = 0,
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=TOPIC_ID,
        replicas=list(replicas),
        isr=list(replicas if isr is None else isr),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=0,
        adding_replicas=list(adding),
        reassignment_origin=origin,
    )


def registration(broker: int, *, fenced: bool = False) -> RegisterBrokerRecord:
    """A broker with one listener, `CLIENTS`, on host `hN`."""
    endpoint = BrokerEndpoint(name="CLIENTS", host=f"h{broker}", port=9092, security_protocol=0)
    return RegisterBrokerRecord(
        broker_id=broker, broker_epoch=broker, rack="r", fenced=fenced, end_points=[endpoint]
    )
