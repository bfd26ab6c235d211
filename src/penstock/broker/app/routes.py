"""The tables of handlers: each API that this broker serves to clients, and its handler.

ApiVersions advertises exactly these APIs. The tables of the internal listener are in `internal_routes`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from penstock.broker.app.group_routes import group_handlers
from penstock.broker.app.health import BrokerHealth
from penstock.broker.app.share_routes import GROUP_CHANGES, share_handlers
from penstock.broker.app.stages import Stages
from penstock.broker.app.streams_routes import streams_handlers
from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.base.context import AsyncHandler, Handler
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.base.mutation_quotas import MutationQuotas
from penstock.broker.fetch.client_fetch import ClientEnvironment
from penstock.broker.fetch.repeated_client import ClientFetchLearner
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.handlers.access import AccessHandlers
from penstock.broker.handlers.api_versions import ApiVersionsHandler
from penstock.broker.handlers.client_telemetry import ClientTelemetryHandlers
from penstock.broker.handlers.cluster import ClusterHandlers
from penstock.broker.handlers.configs import ConfigHandlers, is_of_this_node
from penstock.broker.handlers.delegation_tokens import TOKEN_CHANGES, DelegationTokenHandlers, guarded
from penstock.broker.handlers.describe_cluster import DescribeClusterHandlers
from penstock.broker.handlers.fetch import ClientFetchHandler
from penstock.broker.handlers.log_dirs import LogDirHandlers
from penstock.broker.handlers.metadata import MetadataHandlers
from penstock.broker.handlers.offsets import OffsetHandlers
from penstock.broker.handlers.produce import ProduceHandler
from penstock.broker.handlers.producers import ProducerHandlers
from penstock.broker.handlers.quorum import QuorumHandlers
from penstock.broker.handlers.quotas import QuotaHandlers
from penstock.broker.handlers.sasl import sasl_authenticate, sasl_handshake
from penstock.broker.handlers.topic_partitions import TopicPartitionsHandlers
from penstock.broker.handlers.topics import TopicHandlers
from penstock.broker.handlers.transactions import TransactionHandlers
from penstock.broker.handlers.trust import TrustGuard
from penstock.broker.handlers.txn_markers import TxnMarkerHandlers
from penstock.broker.produce.pending import ProduceEnvironment
from penstock.broker.produce.transactional import TransactionalAppends
from penstock.broker.request.certificate_checks import CertificateChecks
from penstock.wire.api import Api
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER
from penstock.wire.apis.alter_client_quotas import ALTER_CLIENT_QUOTAS
from penstock.wire.apis.alter_configs import ALTER_CONFIGS
from penstock.wire.apis.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from penstock.wire.apis.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from penstock.wire.apis.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from penstock.wire.apis.api_versions import API_VERSIONS
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
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from penstock.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from penstock.wire.apis.describe_quorum import DESCRIBE_QUORUM
from penstock.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from penstock.wire.apis.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from penstock.wire.apis.elect_leaders import ELECT_LEADERS
from penstock.wire.apis.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.get_telemetry_subscriptions import GET_TELEMETRY_SUBSCRIPTIONS
from penstock.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES
from penstock.wire.apis.list_offsets import LIST_OFFSETS
from penstock.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from penstock.wire.apis.metadata import METADATA
from penstock.wire.apis.offset_delete import OFFSET_DELETE
from penstock.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.push_telemetry import PUSH_TELEMETRY
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER
from penstock.wire.apis.renew_delegation_token import RENEW_DELEGATION_TOKEN
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE
from penstock.wire.apis.share_fetch import SHARE_FETCH
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER
from penstock.wire.apis.update_features import UPDATE_FEATURES
from penstock.wire.apis.write_txn_markers import WRITE_TXN_MARKERS

__all__ = ["DATA_CHANGES", "Routes"]

#: how long an idle fetch session keeps its slot
_SESSION_EVICTION_S: Final = 120.0
H = TypeVar("H", bound=Handler)
#: requests that change or delete data of the broker that serves them, and are audited
DATA_CHANGES: Final[tuple[Api[Any, Any], ...]] = (
    DELETE_RECORDS,
    ALTER_REPLICA_LOG_DIRS,
    OFFSET_DELETE,
    *GROUP_CHANGES,
)


class Routes:
    """The handlers of a broker.

    `clients` has the handlers of clients' listeners. `forwarded` has the handlers that only the active
    controller runs, as it runs them; in `clients` they forward.
    """

    def __init__(
        self,
        stages: Stages,
        health: BrokerHealth,
        mutations: MutationQuotas,
        client_telemetry: ClientTelemetry,
    ) -> None:
        """Longer than other functions because it is a table."""
        self._stages = stages
        self._mutations = mutations
        self._client_telemetry = client_telemetry
        node = stages.cluster.node
        self.metadata = self._metadata_handlers()
        self.cluster_description = self._cluster_handlers()
        self.topic_partitions = TopicPartitionsHandlers(
            stages.cluster.image, stages.cluster.node.peers, stages.config
        )
        self.offsets = OffsetHandlers(
            stages.listening.internal_listener, stages.world.workers, stages.storage.partitions
        )
        self.trust = TrustGuard(stages.listening.access, stages.config.internal_endpoint)
        self.configs = ConfigHandlers(
            stages.config,
            stages.config.node_id,
            stages.cluster.image,
            stages.world.clock,
            stages.cluster.node.controller,
            self.trust,
        )
        self.access = AccessHandlers(
            stages.cluster.image,
            stages.cluster.node.controller,
            stages.world.rng,
            stages.listening.access is not None,
        )
        self.tokens = DelegationTokenHandlers(
            stages.config, stages.cluster.image, node.controller, stages.world, stages.listening.access
        )
        self.quotas = QuotaHandlers(stages.cluster.image, stages.cluster.node.controller)
        self.log_dirs = LogDirHandlers(
            stages.storage.partitions,
            node.clock_watch,
            node.image_check,
            stages.world.clock,
            health.findings,
            stages.replication.links,
            stages.config,
            stages.replication.replicas.directory_moves,
        )
        self.quorum = QuorumHandlers(
            node.cluster_id,
            stages.config.node_id,
            node.quorum,
            node.addresses,
            stages.listening.listeners,
            node.awake_clock,
        )
        self.fetch_sessions = sessions = _fetch_sessions(stages)
        fetches = ClientEnvironment(
            stages.storage.partitions,
            stages.storage.metrics,
            stages.world.workers,
            stages.listening.server.call_soon,
            LeaderHints(stages.cluster.image),
            sessions.close,
            stages.listening.access,
            stages.listening.audit.accesses,
        )
        self.fetch = ClientFetchHandler(stages.config, stages.cluster.image, sessions, fetches)
        learner = ClientFetchLearner(self.fetch, fetches)
        #: recognise the requests that clients repeat
        self.repeated = {(FETCH.key, version): learner.learn for version in learner.versions}
        self.transactions = TransactionHandlers(
            stages.coordinators.transactions.runtime,
            stages.coordinators.additions,
            stages.coordinators.groups.runtime.topic,
            stages.cluster.image,
            stages.cluster.producer_ids,
            stages.coordinators.regexes,
        )
        self.forwarded = self._audited(self.authorized(self._forwarded_handlers()))
        self.clients: dict[Api[Any, Any], Handler] = {}
        self.clients.update(self.authorized(self._data_handlers()))
        self.clients.update(self.authorized(group_handlers(stages, self.transactions)))
        self.clients.update(self.authorized(share_handlers(stages)))
        self.clients.update(self.authorized(streams_handlers(stages)))
        self.clients.update(self.authorized(self._admin_handlers()))
        self.clients.update(self._forwarding_handlers())
        if self._is_audited:
            self.clients.update(
                {api: stages.listening.audit.reported(self.clients[api]) for api in DATA_CHANGES}
            )
        if stages.listening.audit.accesses is not None:
            self.clients[PRODUCE] = stages.listening.audit.accesses.produce(self.clients[PRODUCE])
            self.clients[SHARE_FETCH] = stages.listening.audit.accesses.share_fetch(self.clients[SHARE_FETCH])
        if stages.config.penstock_mount is not None:
            # Imported here, because few brokers serve a backup.
            from penstock.broker.request.read_only import refusals

            self.clients.update(refusals(stages.config.penstock_mount, self.clients))

    @property
    def _is_audited(self) -> bool:
        stages = self._stages
        return stages.listening.access is not None or stages.listening.audit_parts.is_kept

    def _audited(self, handlers: dict[Api[Any, Any], AsyncHandler]) -> dict[Api[Any, Any], AsyncHandler]:
        """The handlers of the active controller, with an audit event for each that changes metadata."""
        if not self._is_audited:
            return handlers
        changes = [api for api in handlers if api not in (DESCRIBE_QUORUM, LIST_PARTITION_REASSIGNMENTS)]
        audit = self._stages.listening.audit
        return {api: audit.audited(h) if api in changes else h for api, h in handlers.items()}

    def authorized(self, handlers: dict[Api[Any, Any], H]) -> dict[Api[Any, Any], H]:
        """The handlers with the checks of the authorizer, if there is one."""
        stages = self._stages
        if stages.listening.access is None:
            return handlers
        # Imported here, because a broker without an authorizer does not need the checks.
        from penstock.broker.authorization.forms import Environment
        from penstock.broker.authorization.table import authorized

        environment = Environment(
            stages.listening.access,
            stages.cluster.image,
            lambda: stages.config.auto_create_topics_enable,
            stages.listening.internal_listener,
            lambda context, group, member: stages.coordinators.shares.partitions.revoke(
                context.connection, group, member
            ),
        )
        return {api: authorized(environment, api, handler) for api, handler in handlers.items()}  # type: ignore[misc]

    def _metadata_handlers(self) -> MetadataHandlers:
        stages, node = self._stages, self._stages.cluster.node
        return MetadataHandlers(
            stages.cluster.image,
            node.cluster_id,
            node.peers,
            stages.coordinators.auto_creation.create,
            stages.config,
            stages.listening.internal_listener,
            stages.replication.replicas.fenced_brokers,
        )

    def _cluster_handlers(self) -> DescribeClusterHandlers:
        stages, node = self._stages, self._stages.cluster.node
        return DescribeClusterHandlers(
            stages.cluster.image,
            node.cluster_id,
            stages.config.node_id,
            node.quorum,
            node.addresses,
            stages.listening.internal_listener,
            node.controller_loop.healer.notes,
        )

    def _forwarded_handlers(self) -> dict[Api[Any, Any], AsyncHandler]:
        stages, quorum, node = self._stages, self.quorum, self._stages.cluster.node
        topics = TopicHandlers(
            stages.config,
            stages.cluster.topic_creation,
            stages.cluster.image,
            stages.world.clock,
            stages.cluster.node.controller,
            self._mutations,
        )
        cluster = ClusterHandlers(
            stages.cluster.image, node.controller, node.controller_loop, node.service, node.quorum
        )
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
            CREATE_DELEGATION_TOKEN: self.tokens.create_delegation_token,
            RENEW_DELEGATION_TOKEN: self.tokens.renew_delegation_token,
            EXPIRE_DELEGATION_TOKEN: self.tokens.expire_delegation_token,
        }

    def _data_handlers(self) -> dict[Api[Any, Any], Handler]:
        stages = self._stages
        produces = ProduceEnvironment(
            stages.storage.partitions,
            stages.storage.metrics,
            stages.world.workers,
            stages.listening.server.pool,
            LeaderHints(stages.cluster.image),
            TransactionalAppends(
                stages.coordinators.verifier,
                stages.world.workers,
                stages.listening.server.pool,
                stages.world.clock,
                lambda: stages.config.transaction_partition_verification_enable,
            ),
        )
        producers = ProducerHandlers(
            stages.cluster.producer_ids, stages.storage.partitions, self.transactions
        )
        return {
            PRODUCE: ProduceHandler(produces, stages.listening.access),
            FETCH: self.fetch,
            LIST_OFFSETS: self.offsets.list_offsets,
            OFFSET_FOR_LEADER_EPOCH: self.offsets.offset_for_leader_epoch,
            DELETE_RECORDS: self.offsets.delete_records,
            INIT_PRODUCER_ID: producers.init_producer_id,
            DESCRIBE_PRODUCERS: producers.describe_producers,
            WRITE_TXN_MARKERS: TxnMarkerHandlers(stages.coordinators.markers).write_txn_markers,
        }

    def _admin_handlers(self) -> dict[Api[Any, Any], Handler]:
        stages = self._stages
        telemetry = ClientTelemetryHandlers(
            self._client_telemetry,
            stages.config,
            stages.world.clock,
            stages.world.workers,
            stages.config.node_id,
        )
        versions = ApiVersionsHandler(
            stages.cluster.image, stages.cluster.node.quorum, self.clients, telemetry.is_offered
        )
        return {
            SASL_HANDSHAKE: sasl_handshake,
            SASL_AUTHENTICATE: sasl_authenticate,
            API_VERSIONS: versions.api_versions,
            GET_TELEMETRY_SUBSCRIPTIONS: telemetry.get_telemetry_subscriptions,
            PUSH_TELEMETRY: telemetry.push_telemetry,
            METADATA: self.metadata.metadata,
            DESCRIBE_CLUSTER: self.cluster_description.describe_cluster,
            DESCRIBE_TOPIC_PARTITIONS: self.topic_partitions.describe_topic_partitions,
            DESCRIBE_CONFIGS: self.configs.describe_configs,
            LIST_CONFIG_RESOURCES: self.configs.list_config_resources,
            DESCRIBE_LOG_DIRS: self.log_dirs.describe_log_dirs,
            ALTER_REPLICA_LOG_DIRS: self.log_dirs.alter_replica_log_dirs,
            DESCRIBE_ACLS: self.access.describe_acls,
            DESCRIBE_USER_SCRAM_CREDENTIALS: self.access.describe_user_scram_credentials,
            DESCRIBE_CLIENT_QUOTAS: self.quotas.describe_client_quotas,
            DESCRIBE_DELEGATION_TOKEN: self.tokens.describe_delegation_token,
        }

    def _forwarding_handlers(self) -> dict[Api[Any, Any], Handler]:
        """The active controller checks these requests, for the principal in the Envelope."""
        stages = self._stages
        forwarded = stages.cluster.forwarding.forwarded
        alter = self.forwarded[INCREMENTAL_ALTER_CONFIGS]
        found: dict[Api[Any, Any], AsyncHandler] = {
            **{api: forwarded(api, handler) for api, handler in self.forwarded.items()},
            INCREMENTAL_ALTER_CONFIGS: forwarded(INCREMENTAL_ALTER_CONFIGS, alter, stays=is_of_this_node),
        }
        checks = CertificateChecks(
            stages.config,
            stages.cluster.image,
            stages.listening.securities,
            stages.listening.access,
            self.trust,
            stages.world.workers.in_thread,
        )
        found[ALTER_CONFIGS] = checks.alter_configs(found[ALTER_CONFIGS])
        found[INCREMENTAL_ALTER_CONFIGS] = checks.incremental_alter_configs(found[INCREMENTAL_ALTER_CONFIGS])
        return {**found, **{api: guarded(found[api]) for api in TOKEN_CHANGES}}


def _fetch_sessions(stages: Stages) -> FetchSessions:
    rng = stages.world.rng
    return FetchSessions(
        stages.config.max_incremental_fetch_session_cache_slots,
        _SESSION_EVICTION_S,
        stages.world.clock.monotonic,
        lambda: int.from_bytes(rng.token(4), "big") & 0x7FFFFFFF,
    )
