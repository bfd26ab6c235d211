"""Clusters of brokers on several sites, for tests of placement."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st

from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import Defaults, NewTopic, create_topic
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.wire.metadata_records import (
    BrokerEndpoint,
    RegisterBrokerRecord,
)

#: (zone, host) of each broker
Site = tuple[str, str]


def cluster(sites: list[Site], fenced: Collection[int] = ()) -> ClusterImage:
    image = ClusterImage()
    for node, (rack, host) in enumerate(sites, start=1):
        listeners = [BrokerEndpoint(name="INTERNAL", host=host, port=9000 + node)]
        listeners.append(BrokerEndpoint(name="PUBLIC", host="balancer", port=9000))
        record = RegisterBrokerRecord(broker_id=node, rack=rack, end_points=listeners, fenced=node in fenced)
        image.apply(record, node)
    return image


def create(image: ClusterImage, name: str, partitions: int, factor: int) -> list[list[int]]:
    topic_id = TopicId(name.encode().rjust(16, b"."))
    wanted = NewTopic(name, partitions=partitions, replication_factor=factor)
    for record in at_once(create_topic(image, wanted, Defaults(1, 1), lambda: topic_id)):
        image.apply(record, image.offset + 1)
    return [partition.replicas for partition in image.topics[name].partitions.values()]


# Hosts are named within their zone, as a host is in one.
sites = st.lists(
    st.tuples(st.sampled_from("AB"), st.sampled_from("123")).map(lambda s: (s[0], s[0] + s[1])),
    min_size=1,
    max_size=8,
)
