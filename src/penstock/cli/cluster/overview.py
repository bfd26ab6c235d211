"""The state of a cluster: brokers, controller, partitions, quorum, versions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.cluster.feature_levels import raises_of
from penstock.cli.cluster.healing import BALANCE, controller_configs, healing_overview
from penstock.cli.cluster.health import facts_of, health_view
from penstock.cli.cluster.lag import PartitionLag, partition_lags
from penstock.cli.cluster.machines import sharing_a_machine
from penstock.cli.cluster.moves import ongoing_moves
from penstock.cli.cluster.voters import check_majority, configured_voters, endpoints
from penstock.cli.contacts import NoContact
from penstock.cli.direct import HELLO, DirectLine, NoAnswer, refuse
from penstock.cli.failure import Failure
from penstock.model.addresses import address_text
from penstock.model.ids import METADATA_TOPIC, TopicPartition, format_topic_id
from penstock.observability.health import TopicFacts
from penstock.observability.health_merge import merged
from penstock.observability.health_observed import Silence, observed_reports
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsResponse
from penstock.wire.apis.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest

if TYPE_CHECKING:
    from penstock.wire.apis.describe_quorum import ReplicaState
    from penstock.wire.apis.list_partition_reassignments import OngoingPartitionReassignment

__all__ = ["cluster_overview", "quorum_overview"]

_METADATA_VERSION: Final = "metadata.version"
#: a following voter fetches again after half a second at most
_VOTERS_FETCH_WITHIN_MS: Final = 600


def cluster_overview(line: DirectLine) -> dict[str, Any]:
    """Brokers with their leaders and replicas, and the partitions that lack replicas or a leader."""
    quorum = _quorum_if_any(line)
    cluster = _cluster_as_known_to(line, quorum["leader"])
    partitions = _partitions(line)
    moving = {} if quorum["leader"] is None else ongoing_moves(line)
    addresses = {broker.broker_id: address_text(broker.host, broker.port) for broker in cluster.brokers}
    configs = controller_configs(line, quorum["leader"], addresses)
    answers = line.send_each(addresses.values(), API_VERSIONS, HELLO)
    awake = [address for address, answer in answers.items() if answer is not None]
    request = DescribeLogDirsRequest(topics=None, include_health=True)
    disks = line.send_each(awake, DESCRIBE_LOG_DIRS, request)
    lags = partition_lags({broker: disks.get(address) for broker, address in addresses.items()})
    brokers = [
        {
            "broker": broker.broker_id,
            "address": addresses[broker.broker_id],
            "rack": broker.rack,
            "machine": broker.machine,
            "state": _state(line, addresses[broker.broker_id], broker.is_fenced, awake),
            "leads": sum(p["leader"] == broker.broker_id for p in partitions),
            "replicas": sum(broker.broker_id in p["replicas"] for p in partitions),
            "in_sync": sum(broker.broker_id in p["isr"] for p in partitions),
            **_held(disks.get(addresses[broker.broker_id])),
            **_lag(broker.broker_id, lags.values()),
            "quorum": _role(broker.broker_id, quorum),
            "versions": _supported(answers[addresses[broker.broker_id]]),
        }
        for broker in sorted(cluster.brokers, key=lambda broker: broker.broker_id)
    ]
    return {
        "cluster_id": cluster.cluster_id,
        "controller": quorum["leader"],
        "health": _health(line, cluster, partitions, addresses, disks),
        "metadata_version": _finalized(answers.values()),
        "raises": _raises(answers.values()),
        "balance": configs.get(BALANCE),
        "self_healing": healing_overview(configs, cluster.healing_notes.splitlines(), moving.values()),
        "moving": None if quorum["leader"] is None else len(moving),
        "brokers": brokers,
        "partitions": partitions,
        "under_replicated": [p for p in partitions if len(p["isr"]) < _wanted(p, moving)],
        "leaderless": [p for p in partitions if p["leader"] is None],
        "sharing_a_machine": sharing_a_machine(partitions, brokers, moving),
        "damaged": [
            damage
            for broker in sorted(addresses)
            for damage in _damaged(broker, disks.get(addresses[broker]))
        ],
    }


def _health(
    line: DirectLine,
    cluster: DescribeClusterResponse,
    partitions: Iterable[dict[str, Any]],
    addresses: Mapping[int, str],
    disks: Mapping[str, DescribeLogDirsResponse | None],
) -> dict[str, Any]:
    """The health that the brokers report, merged as `penstock health` does it."""
    topics: dict[str, TopicFacts] = {}
    for each in partitions:
        offline, _, lacking = topics.get(each["topic"], TopicFacts())
        behind = len(each["isr"]) < len(each["replicas"])
        topics[each["topic"]] = TopicFacts(offline + (each["leader"] is None), 0, lacking + behind)
    answers = {
        broker: disks.get(address)
        or Silence(
            "connection refused" if address in line.refused else f"no answer within {line.timeout_s:g} s"
        )
        for broker, address in addresses.items()
    }
    return health_view(merged(observed_reports(answers, facts_of(cluster, topics), topics)))


def _partitions(line: DirectLine) -> list[dict[str, Any]]:
    metadata = line.send(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return [
        {
            "topic": topic.name,
            "partition": partition.partition_index,
            "leader": None if partition.leader_id < 0 else partition.leader_id,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
        }
        for topic in sorted(metadata.topics, key=lambda topic: topic.name or "")
        for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
    ]


def _cluster_as_known_to(line: DirectLine, controller: int | None) -> DescribeClusterResponse:
    """The brokers of the cluster. Later requests go to the controller, if clients can reach it.

    Why: a broker that is cut off, or whose disk has failed, responds with old metadata.
    """
    request = DescribeClusterRequest(include_fenced_brokers=True)
    cluster = line.send(DESCRIBE_CLUSTER, request)
    for broker in cluster.brokers:
        if broker.broker_id == controller:
            line.turn_to(address_text(broker.host, broker.port))
            cluster = line.send(DESCRIBE_CLUSTER, request)
    refuse(cluster.error_code, cluster.error_message, "the cluster")
    return cluster


def quorum_overview(line: DirectLine) -> dict[str, Any]:
    """The leader of the metadata quorum, and the lag of the other nodes; a Failure without a majority."""
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopic(
                topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartition(partition_index=0)]
            )
        ]
    )
    try:
        response = line.send(DESCRIBE_QUORUM, request)
    except NoAnswer as error:
        check_majority(line, configured_voters(line))
        raise Failure(
            "the quorum has no leader: repeat the command, then see the logs of its voters"
        ) from error
    refuse(response.error_code, response.error_message, "the quorum")
    partition = response.topics[0].partitions[0]
    refuse(partition.error_code, partition.error_message, "the quorum")
    replicas = [*partition.current_voters, *partition.observers]
    end = max((replica.log_end_offset for replica in replicas), default=-1)
    newest_ms = max((replica.last_fetch_timestamp for replica in replicas), default=-1)
    voters = [_replica(replica, end, newest_ms) for replica in partition.current_voters]
    heard = [v for v in voters if v["silent_ms"] is not None and v["silent_ms"] <= _VOTERS_FETCH_WITHIN_MS]
    addresses = endpoints(response.nodes)
    if 2 * len(heard) <= len(voters):
        check_majority(line, addresses)
    return {
        "leader": None if partition.leader_id < 0 else partition.leader_id,
        "epoch": partition.leader_epoch,
        "high_watermark": partition.high_watermark,
        "voters": [{**voter, "address": addresses.get(voter["node"])} for voter in voters],
        "observers": [_replica(replica, end, newest_ms) for replica in partition.observers],
    }


def _quorum_if_any(line: DirectLine) -> dict[str, Any]:
    """The quorum, or an empty one: brokers serve clients also without a controller."""
    try:
        return quorum_overview(line)
    except NoContact:  # --timeout is kept: the next request would wait as long
        raise
    except Failure:
        return {"leader": None, "voters": []}


def _wanted(partition: dict[str, Any], moving: Mapping[TopicPartition, OngoingPartitionReassignment]) -> int:
    """The number of replicas that should be in sync.

    Replicas that are being added do not count as missing.
    """
    ongoing = moving.get(TopicPartition(partition["topic"], partition["partition"]))
    return len(partition["replicas"]) - (0 if ongoing is None else len(ongoing.adding_replicas))


def _held(answer: DescribeLogDirsResponse | None) -> dict[str, Any]:
    """The size of a broker's logs, and its failed or full data directories."""
    if answer is None:
        return {
            "bytes": None,
            "offline_directories": [],
            "full_directories": [],
            "quarantined_bytes": None,
            "deletion_suspended": "",
            "metadata_diverged": "",
        }
    return {
        "bytes": sum(p.partition_size for d in answer.results for t in d.topics for p in t.partitions),
        "offline_directories": [directory.log_dir for directory in answer.results if directory.error_code],
        "full_directories": [directory.log_dir for directory in answer.results if directory.is_full],
        "quarantined_bytes": sum(directory.quarantined_bytes for directory in answer.results),
        "deletion_suspended": answer.deletion_suspended,
        "metadata_diverged": answer.metadata_diverged,
    }


def _lag(broker: int, lags: Iterable[PartitionLag]) -> dict[str, Any]:
    """The largest lag of a broker's replicas behind their leaders."""
    found = list(lags)
    return {
        "lag": max((lag.records.get(broker, 0) for lag in found), default=0),
        "lag_s": max((lag.seconds.get(broker, 0.0) for lag in found), default=0.0),
    }


def _damaged(broker: int, answer: DescribeLogDirsResponse | None) -> list[dict[str, Any]]:
    """Replicas with damaged ranges that wait for the bytes of a healthy replica."""
    if answer is None:
        return []
    return [
        {"broker": broker, "topic": t.name, "partition": p.partition_index, "ranges": p.damaged_ranges}
        for directory in answer.results
        for t in directory.topics
        for p in t.partitions
        if p.damaged_ranges
    ]


def _replica(replica: ReplicaState, end: int, newest_ms: int) -> dict[str, Any]:
    return {
        "node": replica.replica_id,
        "end": replica.log_end_offset,
        "lag": end - replica.log_end_offset if replica.log_end_offset >= 0 else None,
        "silent_ms": newest_ms - replica.last_fetch_timestamp if replica.last_fetch_timestamp >= 0 else None,
        "directory_id": format_topic_id(replica.replica_directory_id),
    }


def _state(line: DirectLine, address: str, fenced: bool, awake: Collection[str]) -> str:
    """`down` if its port refuses connections; `silent` if it does not respond."""
    if address not in awake:
        return "down" if address in line.refused else "silent"
    return "fenced" if fenced else "up"


def _role(broker: int, quorum: dict[str, Any]) -> str | None:
    if quorum["leader"] is None:
        return None
    if broker == quorum["leader"]:
        return "leader"
    return "voter" if any(voter["node"] == broker for voter in quorum["voters"]) else "observer"


def _finalized(answers: Any) -> int | None:
    levels = [
        feature.max_version_level
        for answer in answers
        if answer is not None
        for feature in answer.finalized_features
        if feature.name == _METADATA_VERSION
    ]
    return max(levels, default=None)


def _raises(answers: Any) -> list[dict[str, Any]]:
    """The features that can be raised; none while a broker does not respond."""
    found = list(answers)
    return [] if None in found else [each._asdict() for each in raises_of(found)]


def _supported(answer: ApiVersionsResponse | None) -> str | None:
    """The levels of metadata.version that a broker supports."""
    if answer is None:
        return None
    for feature in answer.supported_features:
        if feature.name == _METADATA_VERSION:
            return f"{feature.min_version}-{feature.max_version}"
    return None
