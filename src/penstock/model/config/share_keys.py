"""The configs of share groups: of brokers, of the share coordinator, and of single groups."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.model.config.keys import (
    COMPATIBLE_ONLY,
    ConfigKey,
    ConfigType,
    UpdateMode,
    bounded_group_key,
    table,
)
from penstock.model.config.offset_reset import check_offset_reset

__all__ = ["SHARE_GROUP_KEYS", "SHARE_KEYS"]

_S, _I, _SHORT, _BOOL, _LIST = (
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.BOOLEAN,
    ConfigType.LIST,
)

_MEMBERS = [
    ConfigKey(
        "group.share.session.timeout.ms",
        _I,
        45_000,
        "A member without a heartbeat for this long is removed from its share group.",
        low=1,
    ),
    ConfigKey(
        "group.share.min.session.timeout.ms",
        _I,
        45_000,
        "The lower limit of the group config share.session.timeout.ms.",
        low=1,
    ),
    ConfigKey(
        "group.share.max.session.timeout.ms",
        _I,
        60_000,
        "The upper limit of the group config share.session.timeout.ms.",
        low=1,
    ),
    ConfigKey(
        "group.share.heartbeat.interval.ms",
        _I,
        5000,
        "How often members of a share group send a heartbeat.",
        low=1,
    ),
    ConfigKey(
        "group.share.min.heartbeat.interval.ms",
        _I,
        5000,
        "The lower limit of the group config share.heartbeat.interval.ms.",
        low=1,
    ),
    ConfigKey(
        "group.share.max.heartbeat.interval.ms",
        _I,
        15_000,
        "The upper limit of the group config share.heartbeat.interval.ms.",
        low=1,
    ),
    ConfigKey("group.share.max.size", _I, 200, "The most members of a share group.", low=1, high=1000),
    ConfigKey(
        "group.share.assignors",
        _LIST,
        ("simple",),
        "The assignor of share groups.",
        choices=("simple",),
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "group.share.assignment.interval.ms",
        _I,
        1000,
        "The shortest time between two assignments of a share group.",
        low=0,
    ),
    ConfigKey(
        "group.share.min.assignment.interval.ms",
        _I,
        0,
        "The lower limit of the group config share.assignment.interval.ms.",
        low=0,
    ),
    ConfigKey(
        "group.share.max.assignment.interval.ms",
        _I,
        15_000,
        "The upper limit of the group config share.assignment.interval.ms.",
        low=0,
    ),
]

#: the default of the lock, and the limits of its bounds
_LOCK_MS: Final = 30_000

_DELIVERY = [
    ConfigKey(
        "group.share.delivery.count.limit",
        _I,
        5,
        "The most deliveries of a record to a share group. A record is archived if the last one fails.",
        low=2,
        high=10,
    ),
    ConfigKey(
        "group.share.min.delivery.count.limit",
        _I,
        2,
        "The lower limit of the group config share.delivery.count.limit.",
        low=2,
        high=5,
    ),
    ConfigKey(
        "group.share.max.delivery.count.limit",
        _I,
        10,
        "The upper limit of the group config share.delivery.count.limit.",
        low=5,
        high=25,
    ),
    ConfigKey(
        "group.share.record.lock.duration.ms",
        _I,
        _LOCK_MS,
        "How long a member of a share group has for a record before it is delivered again.",
        low=1000,
        high=3_600_000,
    ),
    ConfigKey(
        "group.share.min.record.lock.duration.ms",
        _I,
        15_000,
        "The lower limit of the group config share.record.lock.duration.ms.",
        low=1000,
        high=_LOCK_MS,
    ),
    ConfigKey(
        "group.share.max.record.lock.duration.ms",
        _I,
        60_000,
        "The upper limit of the group config share.record.lock.duration.ms.",
        low=_LOCK_MS,
        high=3_600_000,
    ),
    ConfigKey(
        "group.share.partition.max.record.locks",
        _I,
        2000,
        "The most records of a partition that a share group has in flight.",
        low=100,
        high=10_000,
    ),
    ConfigKey(
        "group.share.min.partition.max.record.locks",
        _I,
        100,
        "The lower limit of the group config share.partition.max.record.locks.",
        low=100,
        high=2000,
    ),
    ConfigKey(
        "group.share.max.partition.max.record.locks",
        _I,
        4000,
        "The upper limit of the group config share.partition.max.record.locks.",
        low=2000,
        high=10_000,
    ),
    ConfigKey("group.share.max.share.sessions", _I, 2000, "The most share sessions of a broker.", low=1),
]

_COORDINATOR = [
    ConfigKey(
        "share.coordinator.state.topic.num.partitions", _I, 50, "Partitions of __share_group_state.", low=1
    ),
    ConfigKey(
        "share.coordinator.state.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __share_group_state. Share groups are unavailable until that many brokers are "
        "registered. A broker without an internal listener creates one replica.",
        low=1,
    ),
    ConfigKey(
        "share.coordinator.state.topic.min.isr",
        _SHORT,
        2,
        "The min.insync.replicas of __share_group_state.",
        low=1,
    ),
    ConfigKey(
        "share.coordinator.state.topic.segment.bytes",
        _I,
        104857600,
        "Segment size of __share_group_state.",
        low=1,
    ),
    ConfigKey(
        "share.coordinator.snapshot.update.records.per.snapshot",
        _I,
        500,
        "The changes of a share partition after which a snapshot of its state is written.",
        low=0,
    ),
    ConfigKey(
        "share.coordinator.cached.buffer.max.bytes",
        _I,
        1048588,
        "The largest buffer that the share coordinator keeps for its next write.",
        low=524288,
        update_mode=UpdateMode.CLUSTER_WIDE,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "share.coordinator.write.timeout.ms",
        _I,
        5000,
        "How long a change of a share partition waits for its replicas.",
        low=1,
    ),
    ConfigKey(
        "share.coordinator.load.buffer.size",
        _I,
        5242880,
        "The read size when a coordinator loads the state of share partitions.",
        low=1,
    ),
    ConfigKey(
        "share.coordinator.state.topic.prune.interval.ms",
        _I,
        300_000,
        "How often records of __share_group_state that newer snapshots replace are deleted.",
        low=1,
    ),
    ConfigKey(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        _I,
        300_000,
        "How old the last snapshot of a share partition may become before another one is written.",
        low=1,
    ),
    ConfigKey(
        "share.coordinator.threads",
        _I,
        1,
        "Share coordinator threads.",
        low=1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "share.coordinator.append.linger.ms",
        _I,
        -1,
        "How long a share coordinator gathers records before it writes them.",
        low=-1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "share.coordinator.state.topic.compression.codec",
        _I,
        0,
        "The codec number of __share_group_state.",
        without_effect=COMPATIBLE_ONLY,
    ),
]

_DEAD_LETTERS = [
    ConfigKey(
        "errors.deadletterqueue.auto.create.topics.enable",
        _BOOL,
        False,
        "Whether brokers create the topic of a share group's dead letters if it does not exist.",
    ),
    ConfigKey(
        "errors.deadletterqueue.topic.name.prefix",
        _S,
        "dlq.",
        "The prefix that the names of topics for dead letters must have. With an empty prefix any name is "
        "permitted that does not start with `__`.",
    ),
]

_CONSUMED = [
    ConfigKey(
        "penstock.delete.after.consumption.interval.ms",
        _I,
        5000,
        "How often leaders delete the records that all share groups of a topic with "
        "penstock.delete.after.consumption have finished.",
        low=10,
    ),
    ConfigKey(
        "penstock.delete.finished.delay.ms",
        _I,
        300_000,
        "How long leaders keep messages of delay topics that they have moved, and records that all share "
        "groups of a topic with penstock.delete.after.consumption have finished. A broker that was down for "
        "longer than that may not recognise a batch that a producer repeats. The time has to be longer than "
        "delivery.timeout.ms of producers.",
        low=0,
    ),
]

SHARE_KEYS: Final = [*_MEMBERS, *_DELIVERY, *_COORDINATOR, *_DEAD_LETTERS, *_CONSUMED]
_bounded: Final = partial(bounded_group_key, table(SHARE_KEYS))

SHARE_GROUP_KEYS: Final = [
    _bounded(
        "share.session.timeout.ms",
        "A member without a heartbeat for this long is removed from the share group.",
    ),
    _bounded("share.heartbeat.interval.ms", "How often members of the share group send a heartbeat."),
    _bounded("share.assignment.interval.ms", "The shortest time between two assignments of the share group."),
    _bounded(
        "share.record.lock.duration.ms", "How long a member has for a record before it is delivered again."
    ),
    _bounded("share.delivery.count.limit", "The most deliveries of a record to the share group."),
    _bounded(
        "share.partition.max.record.locks",
        "The most records of a partition that the share group has in flight.",
    ),
    ConfigKey(
        "share.auto.offset.reset",
        _S,
        "latest",
        "Where the share group starts in a partition: earliest, latest, or by_duration:PERIOD with a period "
        "in ISO-8601, for example by_duration:PT1H, which starts that long before the first fetch.",
        check=check_offset_reset,
    ),
    ConfigKey(
        "share.isolation.level",
        _S,
        "read_uncommitted",
        "Whether the share group receives records of open and aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
    ),
    ConfigKey(
        "errors.deadletterqueue.topic.name",
        _S,
        "",
        "The topic for records that members reject, and for those whose last delivery has failed (KIP-1191). "
        "The topic must have errors.deadletterqueue.group.enable=true. Empty for none.",
    ),
    ConfigKey(
        "errors.deadletterqueue.copy.record.enable",
        _BOOL,
        False,
        "Whether dead letters have the key, the value and the headers of their record. Without them they "
        "have the headers `__dlq.errors.*`, which name the record, only.",
    ),
    ConfigKey(
        "penstock.share.retry.backoff.ms",
        _I,
        0,
        "The time before a record is delivered again after its first delivery has failed: it was released, "
        "or its acquisition lock has expired. The time doubles with each delivery. It is not persisted: "
        "after a change of the partition's leader records may be delivered earlier.",
        low=0,
        high=86_400_000,
    ),
    ConfigKey(
        "penstock.share.retry.backoff.max.ms",
        _I,
        60_000,
        "The longest time between two deliveries by penstock.share.retry.backoff.ms.",
        low=0,
        high=86_400_000,
    ),
    ConfigKey(
        "share.renew.acknowledge.enable",
        _BOOL,
        True,
        "Whether members may renew the acquisition locks of records.",
    ),
]
