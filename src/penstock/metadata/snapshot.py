"""A snapshot: records that make an image of an empty one, in place of the log that made it.

All of them are applied at the offset of the last record that the snapshot stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.metadata.image import BrokerImage, ClusterImage, ControllerImage, PartitionImage
from penstock.model.steps import Steps, at_once, is_slice_over
from penstock.wire.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import AccessControlEntryRecord, ClientQuotaRecord, QuotaEntity

__all__ = ["image_in_steps", "image_of_snapshot", "snapshot", "snapshot_records"]


def image_of_snapshot(records: Iterable[Struct], offset: int) -> ClusterImage:
    return at_once(image_in_steps(records, offset))


def image_in_steps(records: Iterable[Struct], offset: int) -> Steps[ClusterImage]:
    image = ClusterImage()
    for number, record in enumerate(records, 1):
        image.apply(record, offset)
        if is_slice_over(number):
            yield
    # A snapshot of nothing still stands for a part of the log.
    image.offset = offset
    return image


def snapshot(image: ClusterImage) -> list[Struct]:
    """The features first: they say how to read the rest."""
    return list(snapshot_records(image))


def snapshot_records(image: ClusterImage) -> Iterator[Struct]:
    """As `snapshot`, one by one; the image must not change meanwhile."""
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for controller in image.controllers.values():
        yield _controller(controller)
    for broker in image.brokers.values():
        yield _broker(broker)
    for topic in image.topics.values():
        yield TopicRecord(
            name=topic.name, topic_id=topic.id, created_ms=topic.created_ms, changed_ms=topic.changed_ms
        )
        for partition in topic.partitions.values():
            yield _partition(partition)
    for (kind, resource), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
    yield from image.scram.values()
    yield from image.tokens.values()
    for acl_id, acl in image.acls.by_id.items():
        yield AccessControlEntryRecord(
            id=acl_id,
            resource_type=acl.resource_type,
            resource_name=acl.name,
            pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
    for entity, quotas in image.quotas.items():
        named = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, limit in quotas.items():
            yield ClientQuotaRecord(entity=named, key=key, value=limit)


def _broker(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=name, host=host, port=port, security_protocol=broker.protocols[name])
            for name, (host, port) in broker.endpoints.items()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_directories,
        cordoned_log_dirs=broker.cordoned or None,
        machine=broker.machine,
    )


def _controller(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation,
        end_points=[
            ControllerEndpoint(name=name, host=host, port=port, security_protocol=controller.protocols[name])
            for name, (host, port) in controller.endpoints.items()
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in controller.features.items()
        ],
    )


def _partition(partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing,
        adding_replicas=partition.adding,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_leader or None,
        reassignment_origin=int(partition.origin),
    )
