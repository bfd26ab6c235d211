"""The return of a topic to a link: its logs are cut by a change of the metadata, in a new leader epoch.

The config `penstock.link` has the cut of each partition. The record that sets it begins a new leader epoch of
each partition. A replica sets aside what it has behind the cut, before it leads or follows in that epoch.
So no replica acts on records that another one has cut already.
"""

from __future__ import annotations

from penstock.metadata.image import NO_LEADER, ClusterImage
from penstock.model.config.mirrored_topics import LINK_CONFIG, MirroredTopic, MirrorState
from penstock.model.errors import PolicyViolation
from penstock.wire.metadata_records import PartitionChangeRecord
from penstock.wire.schema import Struct

__all__ = ["new_epochs"]


def new_epochs(image: ClusterImage, topic: str, value: str | None) -> list[Struct]:
    """The records that come behind a new `value` of `penstock.link`: none, unless it cuts logs.

    Raises PolicyViolation if the cuts are not those of the current leaders of a returning topic.
    """
    current = image.topic_configs(topic).get(LINK_CONFIG)
    if not value or value == current:
        return []
    wanted = MirroredTopic.parse(value)
    before = MirroredTopic.parse(current) if current else None
    if not wanted.cuts or (before is not None and wanted.cuts == before.cuts):
        return []
    if before is None or before.state is not MirrorState.RETURNING:
        raise PolicyViolation(f"the logs of topic {topic} are cut only while it returns to a link")
    partitions = image.topics[topic].partitions
    if set(partitions) != set(range(len(wanted.cuts))):
        raise PolicyViolation(f"topic {topic} has {len(partitions)} partitions, and {len(wanted.cuts)} cuts")
    records: list[Struct] = []
    for index, cut in enumerate(wanted.cuts):
        partition = partitions[index]
        if partition.leader == NO_LEADER or partition.leader_epoch != cut.leader_epoch:
            raise PolicyViolation(
                f"partition {topic}-{index} has another leader than when it was compared: repeat the command"
            )
        records.append(
            PartitionChangeRecord(
                topic_id=partition.topic_id, partition_id=partition.index, leader=partition.leader
            )
        )
    return records
