"""The metrics of `/metrics/kafka`: the names of kafka_exporter and of the JMX exporter's rules for Kafka.

Existing dashboards and alerts query them. The JMX exporter writes the names in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.observability.family import Family, Kind, by_name

__all__ = ["KAFKA", "KAFKA_GROUPS"]

_PARTITION: Final = ("topic", "partition")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")


def _named(name: str, help: str, labels: tuple[str, ...] = ()) -> Family:
    return Family(name, Kind.COUNTER if name.endswith("_total") else Kind.GAUGE, help, labels)


_EXPORTER: Final = (
    _named("kafka_brokers", "Number of brokers in the Kafka cluster"),
    _named("kafka_broker_info", "Information about the Kafka broker", ("id", "address")),
    _named("kafka_topic_partitions", "Number of partitions for this topic", ("topic",)),
    _named(
        "kafka_topic_partition_current_offset", "Current offset of a broker at topic/partition", _PARTITION
    ),
    _named("kafka_topic_partition_oldest_offset", "Oldest offset of a broker at topic/partition", _PARTITION),
    _named("kafka_topic_partition_leader", "Leader broker ID of this topic/partition", _PARTITION),
    _named(
        "kafka_topic_partition_leader_is_preferred",
        "1 if topic/partition is using the preferred broker",
        _PARTITION,
    ),
    _named("kafka_topic_partition_replicas", "Number of replicas for this topic/partition", _PARTITION),
    _named(
        "kafka_topic_partition_in_sync_replica",
        "Number of in-sync replicas for this topic/partition",
        _PARTITION,
    ),
    _named(
        "kafka_topic_partition_under_replicated_partition",
        "1 if topic/partition is under replicated",
        _PARTITION,
    ),
    _named("kafka_consumergroup_members", "Amount of members in a consumer group", ("consumergroup",)),
    _named(
        "kafka_consumergroup_current_offset",
        "Current offset of a consumer group at topic/partition",
        _GROUP_PARTITION,
    ),
    _named(
        "kafka_consumergroup_current_offset_sum",
        "Current offset of a consumer group at topic for all partitions",
        _GROUP_PARTITION[:2],
    ),
    _named(
        "kafka_consumergroup_lag",
        "Current approximate lag of a consumer group at topic/partition",
        _GROUP_PARTITION,
    ),
    _named(
        "kafka_consumergroup_lag_sum",
        "Current approximate lag of a consumer group at topic for all partitions",
        _GROUP_PARTITION[:2],
    ),
)
_TRAFFIC: Final = "kafka_server_brokertopicmetrics"
_REPLICAS: Final = "kafka_server_replicamanager"
_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_JMX: Final = (
    _named(
        f"{_TRAFFIC}_messagesin_total", "Messages in, of a topic or (without the label) of all", ("topic",)
    ),
    _named(f"{_TRAFFIC}_bytesin_total", "Bytes in, of a topic or of all", ("topic",)),
    _named(f"{_TRAFFIC}_bytesout_total", "Bytes out, of a topic or of all", ("topic",)),
    _named(f"{_TRAFFIC}_replicationbytesin_total", "Bytes in by replication"),
    _named(f"{_TRAFFIC}_replicationbytesout_total", "Bytes out by replication"),
    _named(f"{_TRAFFIC}_remotefetchrequests_total", "Reads of remote storage: of a mounted backup"),
    _named(f"{_TRAFFIC}_remotefetchbytes_total", "Bytes that were read from remote storage"),
    _named(f"{_TRAFFIC}_remotefetcherrors_total", "Reads of remote storage that failed"),
    _named(f"{_TRAFFIC}_remotecopyrequests_total", "Objects that were copied to remote storage"),
    _named(f"{_TRAFFIC}_remotecopybytes_total", "Bytes that were copied to remote storage"),
    _named(f"{_TRAFFIC}_remotecopyerrors_total", "Copies to remote storage that failed"),
    _named(f"{_TRAFFIC}_remotecopylagbytes", "Bytes of segments that wait for a copy"),
    _named(f"{_TRAFFIC}_remotecopylagsegments", "Segments that wait for a copy"),
    _named(f"{_TRAFFIC}_totalproducerequests_total", "Produce requests"),
    _named(f"{_TRAFFIC}_totalfetchrequests_total", "Fetch requests of clients"),
    _named(f"{_TRAFFIC}_failedproducerequests_total", "Produce requests with an error"),
    _named(f"{_TRAFFIC}_failedfetchrequests_total", "Partitions of Fetch requests with an error"),
    _named("kafka_network_requestmetrics_requests_total", "Requests by name", ("request",)),
    _named("kafka_server_socketservermetrics_connection_count", "Open connections", ("listener",)),
    _named(f"{_REPLICAS}_partitioncount", "Replicas on this broker"),
    _named(f"{_REPLICAS}_leadercount", "Partitions that this broker leads"),
    _named(f"{_REPLICAS}_underreplicatedpartitions", "Partitions led here that are under-replicated"),
    _named(f"{_REPLICAS}_underminisrpartitioncount", "Partitions led here below min.insync.replicas"),
    _named(f"{_REPLICAS}_offlinereplicacount", "Replicas on offline data directories"),
    _named(f"{_REPLICAS}_isrshrinks_total", "Times that in-sync replicas became fewer"),
    _named(f"{_REPLICAS}_isrexpands_total", "Times that in-sync replicas became more"),
    _named("kafka_log_log_size", "Bytes of a replica's log", _PARTITION),
    _named(f"{_CONTROLLER}_activecontrollercount", "1 on the active controller"),
    _named(f"{_CONTROLLER}_offlinepartitionscount", "Partitions without a leader; on the active controller"),
    _named(f"{_CONTROLLER}_activebrokercount", "Active brokers; on the active controller"),
    _named(f"{_CONTROLLER}_fencedbrokercount", "Fenced brokers; on the active controller"),
    _named(f"{_CONTROLLER}_globaltopiccount", "Topics of the cluster; on the active controller"),
    _named(f"{_CONTROLLER}_globalpartitioncount", "Partitions of the cluster; on the active controller"),
)
_PROCESS: Final = (
    _named("process_cpu_seconds_total", "Total user and system CPU time spent in seconds"),
    _named("process_resident_memory_bytes", "Resident memory size in bytes"),
    _named("process_open_fds", "Number of open file descriptors"),
    _named("process_max_fds", "Maximum number of open file descriptors"),
    _named("process_start_time_seconds", "Start time of the process since unix epoch in seconds"),
)

KAFKA_GROUPS: Final[Mapping[str, tuple[Family, ...]]] = {
    "kafka_exporter": _EXPORTER,
    "JMX exporter": _JMX,
    "Process": _PROCESS,
}
#: all families of `/metrics/kafka` by name
KAFKA: Final = by_name(family for table in KAFKA_GROUPS.values() for family in table)
