"""The archived parts of tiered topics: what of a task comes from the archive, and what from brokers.

Brokers decide what there is. A part is read from the archive only above the log start of the cluster, and
only as far as the leader has the same records, as its leader epochs tell. After an unclean election the
archive may have records that the log has lost: then only those below the local log start are read from there,
which brokers read from there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from penstock.archive.names import ArchivedPartition
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.reading.connection import Cluster
from penstock.reading.errors import ReadingError, WrongOption
from penstock.reading.leader_epochs import end_offsets
from penstock.reading.offsets import EARLIEST, Offsets, list_offsets
from penstock.reading.planning import OffsetRange
from penstock.scan.blocking import run
from penstock.scan.place import ArchivePlace
from penstock.scan.tiers import Copied, copied
from penstock.spark.archive_options import AUTO
from penstock.spark.archives import RangeTask, archive_errors
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

__all__ = ["tasks_with_archive"]

_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_BROKER: Final = 4
_ADDRESS: Final = "penstock.remote.log.address"


def tasks_with_archive(
    cluster: Cluster, place: ArchivePlace, ranges: Iterable[OffsetRange], *, committed: bool
) -> list[RangeTask]:
    """The tasks of `ranges`: of each the part that the archive has, as a part."""
    wanted = list(ranges)
    spans = _spans(cluster, place, wanted, committed)
    return [_task(each, spans.get(each.whose)) for each in wanted]


def _task(wanted: OffsetRange, span: Copied | None) -> RangeTask:
    task = RangeTask(wanted.topic, wanted.partition, wanted.start, wanted.stop)
    if span is None:
        return task
    first, stop = max(wanted.start, span.first), min(wanted.stop, span.stop)
    return replace(task, part=span.part(first, stop)) if first < stop else task


def _spans(
    cluster: Cluster, place: ArchivePlace, ranges: list[OffsetRange], committed: bool
) -> dict[TopicPartition, Copied]:
    """What is read from the archive of each partition, if it is any of these ranges."""
    tiered = _listed(cluster, {each.whose for each in ranges}, _LATEST_TIERED)
    # The backlog of a stream ends some day: then brokers are asked for this one offset, and no store.
    behind = {each.whose for each in ranges if each.start <= tiered[each.whose]}
    if not behind:
        return {}
    place = _resolved(cluster, place)
    owners = {partition: _owner(cluster, partition) for partition in behind}
    with archive_errors(f"the archive {place.address}"):
        found = run(copied(place, owners.values()))
    starts = _listed(cluster, behind, EARLIEST)
    known = {partition: found[owner] for partition, owner in owners.items() if owner in found}
    ends = _common_ends(cluster, known)
    return {
        partition: each._replace(
            first=max(each.first, starts[partition]),
            stop=min(ends[partition], each.decided_stop if committed else each.stop),
        )
        for partition, each in known.items()
    }


def _common_ends(cluster: Cluster, known: Mapping[TopicPartition, Copied]) -> Offsets:
    """As far as the leaders have the records of the archive.

    Two logs that have the same leader epoch at an offset are equal up to there.
    """
    of_epochs = end_offsets(cluster, {partition: each.leader_epoch for partition, each in known.items()})
    ends = {partition: each.stop for partition, each in known.items()}
    differ = {
        partition
        for partition, each in known.items()
        if of_epochs[partition].leader_epoch != each.leader_epoch
        or of_epochs[partition].end_offset < each.stop
    }
    return ends | _listed(cluster, differ, _EARLIEST_LOCAL)


def _owner(cluster: Cluster, partition: TopicPartition) -> ArchivedPartition:
    topic_id = cluster.view.topic_id(partition.topic)
    if topic_id is None:
        raise ReadingError(
            f"the cluster gives {partition.topic} no topic id: it cannot be found in an archive"
        )
    return ArchivedPartition(partition.topic, TopicId(topic_id), partition.partition)


def _listed(cluster: Cluster, partitions: Iterable[TopicPartition], position: int) -> Offsets:
    wanted = dict.fromkeys(partitions, position)
    try:
        return list_offsets(cluster, wanted, committed=False)
    except ApiError as e:
        if e.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise WrongOption("the cluster has no tiered storage: leave out the option archive") from e


def _resolved(cluster: Cluster, place: ArchivePlace) -> ArchivePlace:
    """The address that the brokers have, for `archive=auto`."""
    if place.address.lower() != AUTO:
        return place
    node = next(iter(sorted(cluster.view.nodes)))
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node), configuration_keys=[_ADDRESS]
    )
    address = cluster.view.address(node)
    assert address is not None, "the node is in the metadata"
    (result,) = cluster.call(address, DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])).results
    if result.error_code:
        code = ErrorCode(result.error_code)
        raise WrongOption(
            f"archive=auto: broker {node} does not say where its archive is ({code.name}): name the address"
        )
    found = next((each.value for each in result.configs if each.name == _ADDRESS), None)
    if not found:
        raise WrongOption(f"archive=auto: the brokers have no {_ADDRESS}")
    if "://" not in found and not PurePosixPath(found).is_absolute():
        raise WrongOption(
            f"archive=auto: the brokers' archive is the relative folder {found}: name the address"
        )
    return place._replace(address=found)
