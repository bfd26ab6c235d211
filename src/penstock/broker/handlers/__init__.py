"""What this broker serves to clients; ApiVersions advertises exactly this.

What only the active controller can carry out is in `FORWARDED` as that does it; `HANDLERS` has it as any
broker answers it. What nodes ask each other is in `handlers.internal`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.handlers.api_versions import api_versions
from penstock.broker.handlers.cluster import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from penstock.broker.handlers.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    is_of_this_node,
    list_config_resources,
)
from penstock.broker.handlers.fetch import client_fetch
from penstock.broker.handlers.log_dirs import describe_log_dirs
from penstock.broker.handlers.metadata import describe_cluster, describe_topic_partitions, metadata
from penstock.broker.handlers.offsets import delete_records, list_offsets, offset_for_leader_epoch
from penstock.broker.handlers.produce import produce
from penstock.broker.handlers.producers import describe_producers, init_producer_id
from penstock.broker.handlers.quorum import add_raft_voter, describe_quorum, remove_raft_voter
from penstock.broker.handlers.quotas import alter_client_quotas, describe_client_quotas
from penstock.broker.handlers.replica_log_dirs import alter_replica_log_dirs
from penstock.broker.handlers.topics import create_partitions, create_topics, delete_topics
from penstock.broker.request.dispatch import Handler
from penstock.broker.request.forwarding import AsyncHandler, forwarded
from penstock.wire.api import Api
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER
from penstock.wire.apis.alter_client_quotas import ALTER_CLIENT_QUOTAS
from penstock.wire.apis.alter_configs import ALTER_CONFIGS
from penstock.wire.apis.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from penstock.wire.apis.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from penstock.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from penstock.wire.apis.create_partitions import CREATE_PARTITIONS
from penstock.wire.apis.create_topics import CREATE_TOPICS
from penstock.wire.apis.delete_groups import DELETE_GROUPS
from penstock.wire.apis.delete_records import DELETE_RECORDS
from penstock.wire.apis.delete_topics import DELETE_TOPICS
from penstock.wire.apis.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from penstock.wire.apis.describe_configs import DESCRIBE_CONFIGS
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from penstock.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from penstock.wire.apis.describe_quorum import DESCRIBE_QUORUM
from penstock.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from penstock.wire.apis.elect_leaders import ELECT_LEADERS
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.heartbeat import HEARTBEAT
from penstock.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID
from penstock.wire.apis.join_group import JOIN_GROUP
from penstock.wire.apis.leave_group import LEAVE_GROUP
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES
from penstock.wire.apis.list_groups import LIST_GROUPS
from penstock.wire.apis.list_offsets import LIST_OFFSETS
from penstock.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from penstock.wire.apis.metadata import METADATA
from penstock.wire.apis.offset_commit import OFFSET_COMMIT
from penstock.wire.apis.offset_delete import OFFSET_DELETE
from penstock.wire.apis.offset_fetch import OFFSET_FETCH
from penstock.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER
from penstock.wire.apis.sync_group import SYNC_GROUP
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER
from penstock.wire.apis.update_features import UPDATE_FEATURES
from penstock.wire.fetch_form import CLIENT_FETCH

__all__ = ["FORWARDED", "HANDLERS"]


def _of(find: Callable[[Any], Handler]) -> Handler:
    """The handler that is a method of one of a broker's objects."""
    return lambda context, request: find(context.broker)(context, request)


#: what the active controller does, whichever broker was asked
FORWARDED: Final[dict[Api[Any, Any], AsyncHandler]] = {
    CREATE_TOPICS: create_topics,
    DELETE_TOPICS: delete_topics,
    ALTER_CONFIGS: alter_configs,
    CREATE_PARTITIONS: create_partitions,
    ELECT_LEADERS: elect_leaders,
    INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    DESCRIBE_QUORUM: describe_quorum,
    UPDATE_FEATURES: update_features,
    UNREGISTER_BROKER: unregister_broker,
    ADD_RAFT_VOTER: add_raft_voter,
    REMOVE_RAFT_VOTER: remove_raft_voter,
}

HANDLERS: Final[dict[Api[Any, Any], Handler]] = {
    PRODUCE: produce,
    CLIENT_FETCH: client_fetch,
    LIST_OFFSETS: list_offsets,
    METADATA: metadata,
    OFFSET_COMMIT: _of(lambda broker: broker.group_offset_handlers.offset_commit),
    OFFSET_FETCH: _of(lambda broker: broker.group_offset_handlers.offset_fetch),
    FIND_COORDINATOR: _of(lambda broker: broker.coordinator_lookup.find_coordinator),
    JOIN_GROUP: _of(lambda broker: broker.group_handlers.join_group),
    HEARTBEAT: _of(lambda broker: broker.group_handlers.heartbeat),
    LEAVE_GROUP: _of(lambda broker: broker.group_handlers.leave_group),
    SYNC_GROUP: _of(lambda broker: broker.group_handlers.sync_group),
    DESCRIBE_GROUPS: _of(lambda broker: broker.group_handlers.describe_groups),
    LIST_GROUPS: _of(lambda broker: broker.group_handlers.list_groups),
    API_VERSIONS: api_versions,
    DELETE_RECORDS: delete_records,
    INIT_PRODUCER_ID: init_producer_id,
    OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    DESCRIBE_CONFIGS: describe_configs,
    ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    DESCRIBE_LOG_DIRS: describe_log_dirs,
    DELETE_GROUPS: _of(lambda broker: broker.group_handlers.delete_groups),
    OFFSET_DELETE: _of(lambda broker: broker.group_offset_handlers.offset_delete),
    DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ALTER_CLIENT_QUOTAS: alter_client_quotas,
    DESCRIBE_CLUSTER: describe_cluster,
    DESCRIBE_PRODUCERS: describe_producers,
    CONSUMER_GROUP_HEARTBEAT: _of(lambda broker: broker.group_handlers.consumer_group_heartbeat),
    CONSUMER_GROUP_DESCRIBE: _of(lambda broker: broker.group_handlers.consumer_group_describe),
    LIST_CONFIG_RESOURCES: list_config_resources,
    DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    **{api: forwarded(api, handler) for api, handler in FORWARDED.items()},
    INCREMENTAL_ALTER_CONFIGS: forwarded(
        INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs, stays=is_of_this_node
    ),
}
