"""Decisions about brokers: they register, come up, are fenced, shut down and leave.

A broker is fenced (leads nothing, is in no ISR) from its registration until it has read the metadata log up
to that. Each decision carries the partition changes that it entails, so no image ever shows a fenced broker
that leads. Where a decision has many records, the broker's own comes where a cut would do least harm: last
when it goes (its partitions are looked after first), first when it comes up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from penstock.metadata.election import begin_change, lead_elsewhere
from penstock.metadata.features import METADATA_VERSION, check_supported
from penstock.metadata.image import NO_LEADER, BrokerImage, ClusterImage
from penstock.metadata.policy import Policy
from penstock.metadata.withdrawal import exclude_unclean, hand_over, withdraw
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.model.steps import Steps, is_slice_over
from penstock.wire.apis.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.wire.apis.broker_registration import BrokerRegistrationRequest
from penstock.wire.apis.controller_registration import ControllerRegistrationRequest
from penstock.wire.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from penstock.wire.schema import Struct

__all__ = [
    "check_broker_epoch",
    "fence_broker",
    "heartbeat",
    "register_broker",
    "register_controller",
    "unregister_broker",
]

#: directory ids below this number stand for something (lost, unassigned, migrating)
_RESERVED_DIRECTORIES: Final = 100
_UNKNOWN_INCARNATION: Final = bytes(16)
_FENCE: Final = 1
_UNFENCE: Final = -1
#: the level of metadata.version whose records have cordoned data directories (4.3-IV0)
_CORDONS_FROM: Final = 30
_SHUT_DOWN: Final = 1


def check_broker_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    """The broker, if it is the one that is registered and not one that this has replaced."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}",
        )
    return broker


def register_broker(
    image: ClusterImage,
    policy: Policy,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    session_alive: bool,
    next_offset: int,
) -> Steps[tuple[list[Struct], int]]:
    """A broker's registration, fenced, and its epoch: the offset that the last of the records will have.

    `next_offset` is that of the first record, and `session_alive` says whether the broker registered with
    this id is still heard of. A new incarnation that does not know its predecessor's epoch lost power or was
    killed: what it has on its disk does not count as in sync (KIP-966).
    """
    if request.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"This is the cluster {cluster_id}; the broker belongs to {request.cluster_id}",
        )
    known = image.brokers.get(request.broker_id)
    same = known is not None and known.incarnation == request.incarnation_id
    if session_alive and known is not None and not same:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker {request.broker_id} is registered and alive. If this one was just restarted, it "
            "can register once the other's session has expired.",
        )
    _check_registration(image, request)
    record = _registration_record(request)
    if known is not None and same:
        record.broker_epoch = known.epoch
        record.fenced = known.fenced
        record.in_controlled_shutdown = known.in_controlled_shutdown
        return [record], known.epoch
    clean = known is not None and _is_previous(known, request)
    emptied = known is not None and set(known.log_directories).isdisjoint(request.log_dirs)
    records = yield from withdraw(image, policy, request.broker_id, clean=clean, emptied=emptied)
    record.broker_epoch = next_offset + len(records)
    return [*records, record], record.broker_epoch


def _is_previous(known: BrokerImage, request: BrokerRegistrationRequest) -> bool:
    """Whether the broker ended the known registration itself, by a clean shutdown.

    The epoch is an offset: voters that were rolled back may have given it to another incarnation.
    """
    incarnations = (_UNKNOWN_INCARNATION, known.incarnation)
    return known.epoch == request.previous_broker_epoch and request.previous_incarnation_id in incarnations


def _registration_record(request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    """The record of a registration, without its epoch."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            BrokerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
        rack=request.rack,
        log_dirs=request.log_dirs,
        machine=request.machine,
    )


def _check_registration(image: ClusterImage, request: BrokerRegistrationRequest) -> None:
    directories = set(request.log_dirs)
    if not directories:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "The broker names no data directories")
    if len(directories) != len(request.log_dirs):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "The broker names a data directory twice")
    if any(int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES for directory in directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "The broker names a data directory by a reserved id")
    for other in image.brokers.values():
        if other.id != request.broker_id and directories.intersection(other.log_directories):
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {other.id} is registered with one of the broker's data directories",
            )
    ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    if METADATA_VERSION not in ranges:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"The broker does not report its {METADATA_VERSION}")
    check_supported(image.features, ranges)


def register_controller(request: ControllerRegistrationRequest) -> list[Struct]:
    return [
        RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            end_points=[
                ControllerEndpoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in request.listeners
            ],
            features=[
                ControllerFeature(
                    name=f.name,
                    min_supported_version=f.min_supported_version,
                    max_supported_version=f.max_supported_version,
                )
                for f in request.features
            ],
        )
    ]


def unregister_broker(image: ClusterImage, policy: Policy, broker_id: int) -> Steps[list[Struct]]:
    """Forget a broker. Its replicas no longer count, even if it registers again.

    A broker that is up is not forgotten if it has the last in-sync replica of a partition: replicas that lack
    committed records would be elected, although the broker has them and answers.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered")
    changes = yield from withdraw(image, policy, broker_id, clean=False, emptied=True)
    if not broker.fenced:
        _refuse_last_in_sync(image, broker_id, changes)
    return [*changes, UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)]


def _refuse_last_in_sync(image: ClusterImage, broker_id: int, changes: Iterable[Struct]) -> None:
    for change in changes:
        assert isinstance(change, PartitionChangeRecord)
        topic = image.topics_by_id[TopicId(change.topic_id)]
        if change.leader == NO_LEADER and len(topic.partitions[change.partition_id].replicas) > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {broker_id} is up and has the last in-sync replica of "
                f"{topic.name}-{change.partition_id}: stop it first",
            )


def fence_broker(
    image: ClusterImage, policy: Policy, broker_id: int, *, shutdown: int = 0
) -> Steps[list[Struct]]:
    """Fence a broker whose session has expired, or that shuts down (`shutdown`), and move its leaderships."""
    broker = image.brokers[broker_id]
    if broker.fenced:
        return []
    changes = yield from withdraw(image, policy, broker_id)
    return [*changes, _registration_change(broker, fenced=_FENCE, in_controlled_shutdown=shutdown)]


def heartbeat(
    image: ClusterImage, policy: Policy, request: BrokerHeartbeatRequest, lowest_active_offset: int
) -> Steps[tuple[list[Struct], BrokerHeartbeatResponse]]:
    """The records and the response of a broker's heartbeat. It yields only if there will be records.

    One whose data directories have all failed is fenced. A broker that wants to shut down may do so when it
    leads nothing and every active broker has applied that (`lowest_active_offset`): until then clients may
    still be sent to it.

    Unclean replicas come first. If the heartbeat lists any that the image still counts on, only these change.
    The same heartbeat does not unfence the broker, so no image shows it unfenced and such a replica eligible.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= broker.epoch
    answer = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=broker.fenced)
    failed = set(request.offline_log_dirs).intersection(broker.log_directories)
    want_fence = request.want_fence or (bool(failed) and failed == set(broker.log_directories))
    records: list[Struct] = yield from exclude_unclean(image, policy, broker.id, request.unclean_replicas)
    if records:
        return records, answer
    if broker.fenced:
        answer.should_shut_down = request.want_shut_down
        wants_up = not (want_fence or request.want_shut_down or broker.in_controlled_shutdown)
        if caught_up and wants_up:
            records = yield from _unfence(image, policy, broker)
            answer.is_fenced = False
    elif want_fence or _may_shut_down(image, request, broker, lowest_active_offset):
        is_first = request.want_shut_down and not broker.in_controlled_shutdown
        shutdown = _SHUT_DOWN if is_first else 0
        records = yield from fence_broker(image, policy, broker.id, shutdown=shutdown)
        answer.is_fenced = True
        answer.should_shut_down = request.want_shut_down
    elif request.want_shut_down and not broker.in_controlled_shutdown:
        records = yield from withdraw(image, policy, broker.id)
        records.append(_registration_change(broker, in_controlled_shutdown=_SHUT_DOWN))
    elif failed:
        records = yield from _directories_offline(image, policy, broker, failed)
    else:
        records = yield from hand_over(image, policy, broker.id, request.without_room)
        if not records and broker.id in policy.clocks_off:
            records = lead_elsewhere(image, policy, broker.id)
    records += _cordoned(image, broker, request.cordoned_log_dirs)
    return records, answer


def _cordoned(
    image: ClusterImage, broker: BrokerImage, directories: Collection[bytes] | None
) -> list[Struct]:
    """The change of a broker's cordoned data directories (KIP-1066), as far as records may have them."""
    if directories is None or image.features.get(METADATA_VERSION, 0) < _CORDONS_FROM:
        return []
    wanted = [each for each in broker.log_directories if each in directories]
    if set(wanted) == set(broker.cordoned):
        return []
    change = _registration_change(broker)
    change.cordoned_log_dirs = wanted
    return [change]


def _directories_offline(
    image: ClusterImage, policy: Policy, broker: BrokerImage, failed: Collection[bytes]
) -> Steps[list[Struct]]:
    """Take a broker, some of whose data directories have failed, out of the ISRs that can do without it.

    The controller does not know which replicas were in those directories. Replicas in healthy ones are back
    in sync within moments; the others cannot be. If the broker is alone in sync, no other replica could lead.
    """
    change = _registration_change(broker)
    change.log_dirs = [directory for directory in broker.log_directories if directory not in failed]
    changes = yield from withdraw(image, policy, broker.id, clean=False, even_if_last=False)
    return [*changes, change]


def _may_shut_down(
    image: ClusterImage, request: BrokerHeartbeatRequest, broker: BrokerImage, lowest_active_offset: int
) -> bool:
    if not request.want_shut_down or any(p.leader == broker.id for p in image.partitions_on(broker.id)):
        return False
    return not broker.in_controlled_shutdown or broker.shutdown_offset <= lowest_active_offset


def _unfence(image: ClusterImage, policy: Policy, broker: BrokerImage) -> Steps[list[Struct]]:
    """Let a broker lead, first the partitions without a leader."""
    records: list[Struct] = [_registration_change(broker, fenced=_UNFENCE)]
    for partition in image.partitions_on(broker.id):
        if partition.leader == NO_LEADER:
            record = begin_change(image, policy, partition, joining=broker.id).build()
            if record is not None:
                records.append(record)
                if is_slice_over(len(records)):
                    yield
    return records


def _registration_change(
    broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
