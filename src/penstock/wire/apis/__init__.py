"""The table of APIs: one module per API, one registry.

Imports: `wire.schema` and `wire.api`.
Used by: every package that sends or serves requests.
"""

from __future__ import annotations

from typing import Any

from penstock.wire.api import Api
from penstock.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from penstock.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER
from penstock.wire.apis.allocate_producer_ids import ALLOCATE_PRODUCER_IDS
from penstock.wire.apis.alter_client_quotas import ALTER_CLIENT_QUOTAS
from penstock.wire.apis.alter_configs import ALTER_CONFIGS
from penstock.wire.apis.alter_partition import ALTER_PARTITION
from penstock.wire.apis.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from penstock.wire.apis.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from penstock.wire.apis.alter_share_group_offsets import ALTER_SHARE_GROUP_OFFSETS
from penstock.wire.apis.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.begin_quorum_epoch import BEGIN_QUORUM_EPOCH
from penstock.wire.apis.broker_heartbeat import BROKER_HEARTBEAT
from penstock.wire.apis.broker_registration import BROKER_REGISTRATION
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from penstock.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from penstock.wire.apis.controller_registration import CONTROLLER_REGISTRATION
from penstock.wire.apis.create_acls import CREATE_ACLS
from penstock.wire.apis.create_delegation_token import CREATE_DELEGATION_TOKEN
from penstock.wire.apis.create_partitions import CREATE_PARTITIONS
from penstock.wire.apis.create_topics import CREATE_TOPICS
from penstock.wire.apis.delete_acls import DELETE_ACLS
from penstock.wire.apis.delete_groups import DELETE_GROUPS
from penstock.wire.apis.delete_records import DELETE_RECORDS
from penstock.wire.apis.delete_share_group_offsets import DELETE_SHARE_GROUP_OFFSETS
from penstock.wire.apis.delete_share_group_state import DELETE_SHARE_GROUP_STATE
from penstock.wire.apis.delete_topics import DELETE_TOPICS
from penstock.wire.apis.describe_acls import DESCRIBE_ACLS
from penstock.wire.apis.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from penstock.wire.apis.describe_configs import DESCRIBE_CONFIGS
from penstock.wire.apis.describe_delegation_token import DESCRIBE_DELEGATION_TOKEN
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from penstock.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from penstock.wire.apis.describe_quorum import DESCRIBE_QUORUM
from penstock.wire.apis.describe_share_group_offsets import DESCRIBE_SHARE_GROUP_OFFSETS
from penstock.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS
from penstock.wire.apis.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from penstock.wire.apis.elect_leaders import ELECT_LEADERS
from penstock.wire.apis.end_quorum_epoch import END_QUORUM_EPOCH
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.envelope import ENVELOPE
from penstock.wire.apis.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.fetch_snapshot import FETCH_SNAPSHOT
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.get_replica_log_info import GET_REPLICA_LOG_INFO
from penstock.wire.apis.get_telemetry_subscriptions import GET_TELEMETRY_SUBSCRIPTIONS
from penstock.wire.apis.heartbeat import HEARTBEAT
from penstock.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID
from penstock.wire.apis.initialize_share_group_state import INITIALIZE_SHARE_GROUP_STATE
from penstock.wire.apis.join_group import JOIN_GROUP
from penstock.wire.apis.leave_group import LEAVE_GROUP
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES
from penstock.wire.apis.list_groups import LIST_GROUPS
from penstock.wire.apis.list_offsets import LIST_OFFSETS
from penstock.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS
from penstock.wire.apis.metadata import METADATA
from penstock.wire.apis.offset_commit import OFFSET_COMMIT
from penstock.wire.apis.offset_delete import OFFSET_DELETE
from penstock.wire.apis.offset_fetch import OFFSET_FETCH
from penstock.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.push_telemetry import PUSH_TELEMETRY
from penstock.wire.apis.read_share_group_state import READ_SHARE_GROUP_STATE
from penstock.wire.apis.read_share_group_state_summary import READ_SHARE_GROUP_STATE_SUMMARY
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER
from penstock.wire.apis.renew_delegation_token import RENEW_DELEGATION_TOKEN
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE
from penstock.wire.apis.share_acknowledge import SHARE_ACKNOWLEDGE
from penstock.wire.apis.share_fetch import SHARE_FETCH
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT
from penstock.wire.apis.streams_group_describe import STREAMS_GROUP_DESCRIBE
from penstock.wire.apis.streams_group_heartbeat import STREAMS_GROUP_HEARTBEAT
from penstock.wire.apis.sync_group import SYNC_GROUP
from penstock.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER
from penstock.wire.apis.update_features import UPDATE_FEATURES
from penstock.wire.apis.update_raft_voter import UPDATE_RAFT_VOTER
from penstock.wire.apis.vote import VOTE
from penstock.wire.apis.write_share_group_state import WRITE_SHARE_GROUP_STATE
from penstock.wire.apis.write_txn_markers import WRITE_TXN_MARKERS

__all__ = ["APIS"]

#: Every API that there are tables for, by key. The handlers of a broker decide which of them it serves.
APIS: dict[int, Api[Any, Any]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        GET_TELEMETRY_SUBSCRIPTIONS,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_DELEGATION_TOKEN,
        RENEW_DELEGATION_TOKEN,
        EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        ALTER_USER_SCRAM_CREDENTIALS,
        DELETE_ACLS,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        OFFSET_FOR_LEADER_EPOCH,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_LOG_DIRS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS,
        OFFSET_DELETE,
        DESCRIBE_CLIENT_QUOTAS,
        ALTER_CLIENT_QUOTAS,
        VOTE,
        BEGIN_QUORUM_EPOCH,
        END_QUORUM_EPOCH,
        DESCRIBE_QUORUM,
        ALTER_PARTITION,
        UPDATE_FEATURES,
        ENVELOPE,
        FETCH_SNAPSHOT,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        BROKER_REGISTRATION,
        BROKER_HEARTBEAT,
        UNREGISTER_BROKER,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
        ALLOCATE_PRODUCER_IDS,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        CONTROLLER_REGISTRATION,
        LIST_CONFIG_RESOURCES,
        DESCRIBE_TOPIC_PARTITIONS,
        SHARE_GROUP_HEARTBEAT,
        SHARE_GROUP_DESCRIBE,
        SHARE_FETCH,
        SHARE_ACKNOWLEDGE,
        ADD_RAFT_VOTER,
        REMOVE_RAFT_VOTER,
        UPDATE_RAFT_VOTER,
        INITIALIZE_SHARE_GROUP_STATE,
        PUSH_TELEMETRY,
        READ_SHARE_GROUP_STATE,
        WRITE_SHARE_GROUP_STATE,
        DELETE_SHARE_GROUP_STATE,
        READ_SHARE_GROUP_STATE_SUMMARY,
        STREAMS_GROUP_HEARTBEAT,
        STREAMS_GROUP_DESCRIBE,
        DESCRIBE_SHARE_GROUP_OFFSETS,
        ALTER_SHARE_GROUP_OFFSETS,
        DELETE_SHARE_GROUP_OFFSETS,
        GET_REPLICA_LOG_INFO,
    )
}
