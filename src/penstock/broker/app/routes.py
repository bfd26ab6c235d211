"""The tables of handlers: each API that this broker serves to clients, and its handler.

ApiVersions advertises exactly these APIs. The tables of the internal listener are in `internal_routes`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from penstock.broker.app.parts import BrokerParts
from penstock.broker.app.share_routes import GROUP_CHANGES, share_handlers
from penstock.broker.base.context import AsyncHandler, Handler
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.fetch.client_fetch import ClientEnvironment
from penstock.broker.fetch.repeated_client import ClientFetchLearner
from penstock.broker.handlers.access import AccessHandlers
from penstock.broker.handlers.api_versions import ApiVersionsHandler
from penstock.broker.handlers.client_telemetry import ClientTelemetryHandlers
from penstock.broker.handlers.cluster import ClusterHandlers
from penstock.broker.handlers.configs import ConfigHandlers, is_of_this_node
from penstock.broker.handlers.delegation_tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from penstock.broker.handlers.fetch import ClientFetchHandler
from penstock.broker.handlers.find_coordinator import CoordinatorLookup
from penstock.broker.handlers.group_offsets import GroupOffsetHandlers
from penstock.broker.handlers.groups import GroupHandlers
from penstock.broker.handlers.log_dirs import LogDirHandlers
from penstock.broker.handlers.metadata import MetadataHandlers
from penstock.broker.handlers.metered_fetch import MeteredFetchHandler
from penstock.broker.handlers.offsets import OffsetHandlers
from penstock.broker.handlers.produce import ProduceHandler
from penstock.broker.handlers.producers import ProducerHandlers
from penstock.broker.handlers.quorum import QuorumHandlers
from penstock.broker.handlers.quotas import QuotaHandlers
from penstock.broker.handlers.sasl import sasl_authenticate, sasl_handshake
from penstock.broker.handlers.topics import TopicHandlers
from penstock.broker.handlers.transactions import TransactionHandlers
from penstock.broker.handlers.txn_markers import TxnMarkerHandlers
from penstock.broker.handlers.txn_offsets import TxnOffsetHandlers
from penstock.broker.produce.pending import ProduceEnvironment
from penstock.broker.produce.transactional import TransactionalAppends
from penstock.broker.request.certificate_checks import CertificateChecks
from penstock.net.listener import Listener
from penstock.wire.api import Api
from penstock.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from penstock.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER
from penstock.wire.apis.alter_client_quotas import ALTER_CLIENT_QUOTAS
from penstock.wire.apis.alter_configs import ALTER_CONFIGS
from penstock.wire.apis.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from penstock.wire.apis.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from penstock.wire.apis.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from penstock.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from penstock.wire.apis.create_acls import CREATE_ACLS
from penstock.wire.apis.create_delegation_token import CREATE_DELEGATION_TOKEN
from penstock.wire.apis.create_partitions import CREATE_PARTITIONS
from penstock.wire.apis.create_topics import CREATE_TOPICS
from penstock.wire.apis.delete_acls import DELETE_ACLS
from penstock.wire.apis.delete_records import DELETE_RECORDS
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
from penstock.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS
from penstock.wire.apis.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from penstock.wire.apis.elect_leaders import ELECT_LEADERS
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.get_telemetry_subscriptions import GET_TELEMETRY_SUBSCRIPTIONS
from penstock.wire.apis.heartbeat import HEARTBEAT
from penstock.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID
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
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER
from penstock.wire.apis.renew_delegation_token import RENEW_DELEGATION_TOKEN
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE
from penstock.wire.apis.sync_group import SYNC_GROUP
from penstock.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER
from penstock.wire.apis.update_features import UPDATE_FEATURES
from penstock.wire.apis.write_txn_markers import WRITE_TXN_MARKERS

__all__ = ["DATA_CHANGES", "Routes"]

H = TypeVar("H", bound=Handler)
#: requests that change or delete data of the broker that serves them, and are audited
DATA_CHANGES: Final[tuple[Api[Any, Any], ...]] = (
    DELETE_RECORDS,
    ALTER_REPLICA_LOG_DIRS,
    OFFSET_DELETE,
    *GROUP_CHANGES,
)


class Routes:
    """The handlers of one parts.

    `clients` has the handlers of clients' listeners. `forwarded` has the handlers that only the active
    controller runs, as it runs them; in `clients` they forward.
    """

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self.metadata = self._metadata_handlers()
        self.offsets = OffsetHandlers(_internal_listener(parts), parts.workers, parts.partitions)
        self.configs = ConfigHandlers(
            parts.config, parts.node_id, parts.image, parts.clock, parts.node.controller
        )
        self.access = AccessHandlers(parts.image, parts.node.controller, parts.rng, parts.access is not None)
        self.quotas = QuotaHandlers(parts.image, parts.node.controller)
        self.log_dirs = LogDirHandlers(parts.partitions, parts.node, parts.clock)
        self.quorum = QuorumHandlers(parts.node, parts.node_id, parts.listeners, parts.clock)
        fetches = ClientEnvironment(
            parts.partitions,
            parts.metrics,
            parts.workers,
            parts.server.call_soon,
            LeaderHints(parts.image),
            parts.access,
        )
        self.fetch = ClientFetchHandler(parts.config, parts.image, parts.fetch_sessions, fetches)
        metered_fetch = MeteredFetchHandler(parts.config, parts.image, parts.fetch_sessions, fetches)
        learner = ClientFetchLearner(self.fetch, fetches)
        #: recognise the requests that clients repeat
        self.repeated = {(FETCH.key, version): learner.learn for version in learner.versions}
        self.transactions = TransactionHandlers(
            parts.transactions.runtime,
            parts.additions,
            parts.groups.runtime.topic,
            parts.image,
            parts.producer_ids,
        )
        self.forwarded = self._audited(self.authorized(self._forwarded_handlers()))
        self.clients: dict[Api[Any, Any], Handler] = {}
        self.clients.update(self.authorized(self._data_handlers()))
        self.clients.update(self.authorized(self._group_handlers()))
        self.clients.update(self.authorized(share_handlers(parts)))
        self.clients.update(self.authorized(self._admin_handlers()))
        self.clients.update(self._forwarding_handlers())
        if self._is_audited:
            self.clients.update({api: parts.audit.reported(self.clients[api]) for api in DATA_CHANGES})
        #: the handlers of clients that have a quota
        self.metered: dict[Api[Any, Any], Handler] = dict(self.clients)
        self.metered.update(self.authorized({FETCH: metered_fetch}))

    @property
    def _is_audited(self) -> bool:
        return self._parts.access is not None or self._parts.audit_queue is not None

    def _audited(self, handlers: dict[Api[Any, Any], AsyncHandler]) -> dict[Api[Any, Any], AsyncHandler]:
        """The handlers of the active controller, with an audit event for each that changes metadata."""
        if not self._is_audited:
            return handlers
        changes = [api for api in handlers if api not in (DESCRIBE_QUORUM, LIST_PARTITION_REASSIGNMENTS)]
        audit = self._parts.audit
        return {api: audit.audited(h) if api in changes else h for api, h in handlers.items()}

    def authorized(self, handlers: dict[Api[Any, Any], H]) -> dict[Api[Any, Any], H]:
        """The handlers with the checks of the authorizer, if there is one."""
        parts = self._parts
        if parts.access is None:
            return handlers
        # Imported here, because a broker without an authorizer does not need the checks.
        from penstock.broker.authorization.forms import Environment
        from penstock.broker.authorization.table import authorized

        environment = Environment(
            parts.access,
            parts.image,
            lambda: parts.config.auto_create_topics_enable,
            _internal_listener(parts),
            lambda context, group, member: parts.shares.partitions.revoke(context.connection, group, member),
        )
        return {api: authorized(environment, api, handler) for api, handler in handlers.items()}  # type: ignore[misc]

    def _metadata_handlers(self) -> MetadataHandlers:
        parts = self._parts
        return MetadataHandlers(
            parts.image,
            parts.node,
            parts.node_id,
            parts.auto_creation.create,
            parts.config,
            _internal_listener(parts),
            parts.replicas.fenced_brokers,
        )

    def _forwarded_handlers(self) -> dict[Api[Any, Any], AsyncHandler]:
        parts, quorum = self._parts, self.quorum
        topics = TopicHandlers(
            parts.config,
            parts.topic_creation,
            parts.image,
            parts.clock,
            parts.node.controller,
            parts.mutations,
        )
        cluster = ClusterHandlers(parts.node, parts.image, parts.node.controller)
        return {
            CREATE_TOPICS: topics.create_topics,
            DELETE_TOPICS: topics.delete_topics,
            ALTER_CONFIGS: self.configs.alter_configs,
            CREATE_PARTITIONS: topics.create_partitions,
            ELECT_LEADERS: cluster.elect_leaders,
            INCREMENTAL_ALTER_CONFIGS: self.configs.incremental_alter_configs,
            ALTER_PARTITION_REASSIGNMENTS: cluster.alter_partition_reassignments,
            LIST_PARTITION_REASSIGNMENTS: cluster.list_partition_reassignments,
            DESCRIBE_QUORUM: quorum.describe_quorum,
            UPDATE_FEATURES: cluster.update_features,
            UNREGISTER_BROKER: cluster.unregister_broker,
            ADD_RAFT_VOTER: quorum.add_raft_voter,
            REMOVE_RAFT_VOTER: quorum.remove_raft_voter,
            CREATE_ACLS: self.access.create_acls,
            DELETE_ACLS: self.access.delete_acls,
            ALTER_USER_SCRAM_CREDENTIALS: self.access.alter_user_scram_credentials,
            ALTER_CLIENT_QUOTAS: self.quotas.alter_client_quotas,
        }

    def _data_handlers(self) -> dict[Api[Any, Any], Handler]:
        parts = self._parts
        produces = ProduceEnvironment(
            parts.partitions,
            parts.metrics,
            parts.workers,
            parts.server.pool,
            LeaderHints(parts.image),
            TransactionalAppends(
                parts.verifier,
                parts.workers,
                parts.server.pool,
                parts.clock,
                lambda: parts.config.transaction_partition_verification_enable,
            ),
        )
        producers = ProducerHandlers(parts.producer_ids, parts.partitions, self.transactions)
        return {
            PRODUCE: ProduceHandler(produces, parts.access),
            FETCH: self.fetch,
            LIST_OFFSETS: self.offsets.list_offsets,
            OFFSET_FOR_LEADER_EPOCH: self.offsets.offset_for_leader_epoch,
            DELETE_RECORDS: self.offsets.delete_records,
            INIT_PRODUCER_ID: producers.init_producer_id,
            DESCRIBE_PRODUCERS: producers.describe_producers,
            WRITE_TXN_MARKERS: TxnMarkerHandlers(parts.markers).write_txn_markers,
        }

    def _group_handlers(self) -> dict[Api[Any, Any], Handler]:
        parts = self._parts
        groups = GroupHandlers(parts.groups.runtime, parts.access)
        offsets = GroupOffsetHandlers(parts.groups.runtime, parts.image)
        lookup = CoordinatorLookup(
            parts.groups.runtime,
            parts.transactions.runtime,
            parts.shares.coordinator.runtime,
            parts.shares.is_enabled,
            parts.image,
        )
        txn_offsets = TxnOffsetHandlers(parts.groups.runtime, parts.image, parts.verifier, parts.clock.now_ms)
        return {
            FIND_COORDINATOR: lookup.find_coordinator,
            ADD_PARTITIONS_TO_TXN: self.transactions.add_partitions_to_txn,
            ADD_OFFSETS_TO_TXN: self.transactions.add_offsets_to_txn,
            END_TXN: self.transactions.end_txn,
            TXN_OFFSET_COMMIT: txn_offsets.txn_offset_commit,
            DESCRIBE_TRANSACTIONS: self.transactions.describe_transactions,
            LIST_TRANSACTIONS: self.transactions.list_transactions,
            OFFSET_COMMIT: offsets.offset_commit,
            OFFSET_FETCH: offsets.offset_fetch,
            OFFSET_DELETE: offsets.offset_delete,
            JOIN_GROUP: groups.join_group,
            HEARTBEAT: groups.heartbeat,
            LEAVE_GROUP: groups.leave_group,
            SYNC_GROUP: groups.sync_group,
            DESCRIBE_GROUPS: groups.describe_groups,
            LIST_GROUPS: groups.list_groups,
            CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat,
            CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
        }

    def _admin_handlers(self) -> dict[Api[Any, Any], Handler]:
        parts = self._parts
        telemetry = ClientTelemetryHandlers(
            parts.client_telemetry, parts.config, parts.clock, parts.workers, parts.node_id
        )
        versions = ApiVersionsHandler(parts.node, self.clients, telemetry.is_offered)
        return {
            SASL_HANDSHAKE: sasl_handshake,
            SASL_AUTHENTICATE: sasl_authenticate,
            API_VERSIONS: versions.api_versions,
            GET_TELEMETRY_SUBSCRIPTIONS: telemetry.get_telemetry_subscriptions,
            PUSH_TELEMETRY: telemetry.push_telemetry,
            METADATA: self.metadata.metadata,
            DESCRIBE_CLUSTER: self.metadata.describe_cluster,
            DESCRIBE_TOPIC_PARTITIONS: self.metadata.describe_topic_partitions,
            DESCRIBE_CONFIGS: self.configs.describe_configs,
            LIST_CONFIG_RESOURCES: self.configs.list_config_resources,
            DESCRIBE_LOG_DIRS: self.log_dirs.describe_log_dirs,
            ALTER_REPLICA_LOG_DIRS: self.log_dirs.alter_replica_log_dirs,
            DESCRIBE_ACLS: self.access.describe_acls,
            DESCRIBE_USER_SCRAM_CREDENTIALS: self.access.describe_user_scram_credentials,
            DESCRIBE_CLIENT_QUOTAS: self.quotas.describe_client_quotas,
            CREATE_DELEGATION_TOKEN: create_delegation_token,
            RENEW_DELEGATION_TOKEN: renew_delegation_token,
            EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
            DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
        }

    def _forwarding_handlers(self) -> dict[Api[Any, Any], Handler]:
        """The active controller checks these requests, for the principal in the Envelope."""
        parts = self._parts
        forwarded = parts.forwarding.forwarded
        alter = self.forwarded[INCREMENTAL_ALTER_CONFIGS]
        found: dict[Api[Any, Any], AsyncHandler] = {
            **{api: forwarded(api, handler) for api, handler in self.forwarded.items()},
            INCREMENTAL_ALTER_CONFIGS: forwarded(INCREMENTAL_ALTER_CONFIGS, alter, stays=is_of_this_node),
        }
        checks = CertificateChecks(
            parts.config, parts.image, parts.securities, parts.access, parts.workers.in_thread
        )
        found[ALTER_CONFIGS] = checks.alter_configs(found[ALTER_CONFIGS])
        found[INCREMENTAL_ALTER_CONFIGS] = checks.incremental_alter_configs(found[INCREMENTAL_ALTER_CONFIGS])
        return {**found}


def _internal_listener(parts: BrokerParts) -> Listener | None:
    return None if parts.internal is None else parts.internal.listener
