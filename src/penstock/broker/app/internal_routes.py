"""The table of handlers of the internal listener: the APIs that nodes use among themselves.

Operators reach the controllers here, too (KIP-919). A broker without an internal listener never imports this.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.app.routes import Routes
from penstock.broker.app.share_routes import SHARE_STATE_APIS
from penstock.broker.app.stages import Stages
from penstock.broker.base.context import AsyncHandler, Context, Handler
from penstock.broker.base.repeated import Learn
from penstock.broker.fetch.repeated_replica import ReplicaFetchLearner
from penstock.broker.fetch.replica_fetch import ReplicaEnvironment
from penstock.broker.handlers.api_versions import ApiVersionsHandler
from penstock.broker.handlers.replica_fetch import InternalFetchHandler, ReplicaFetchHandler
from penstock.broker.handlers.replica_log_info import ReplicaLogInfoHandlers
from penstock.broker.node.controller_service import SERVED, ControllerService
from penstock.wire.api import Api
from penstock.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.begin_quorum_epoch import BEGIN_QUORUM_EPOCH
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from penstock.wire.apis.describe_configs import DESCRIBE_CONFIGS
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from penstock.wire.apis.end_quorum_epoch import END_QUORUM_EPOCH
from penstock.wire.apis.envelope import ENVELOPE
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.fetch_snapshot import FETCH_SNAPSHOT
from penstock.wire.apis.get_replica_log_info import GET_REPLICA_LOG_INFO
from penstock.wire.apis.list_offsets import LIST_OFFSETS
from penstock.wire.apis.metadata import METADATA
from penstock.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE
from penstock.wire.apis.update_raft_voter import UPDATE_RAFT_VOTER
from penstock.wire.apis.vote import VOTE
from penstock.wire.apis.write_txn_markers import WRITE_TXN_MARKERS
from penstock.wire.schema import Struct

__all__ = ["internal_handlers", "repeated_on_internal_listener"]

#: APIs that the internal listener serves as clients' listeners do
_AS_FOR_CLIENTS: Final[tuple[Api[Any, Any], ...]] = (
    METADATA,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    ADD_PARTITIONS_TO_TXN,
    WRITE_TXN_MARKERS,
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    *SHARE_STATE_APIS,
)


def internal_handlers(stages: Stages, routes: Routes) -> dict[Api[Any, Any], Handler]:
    """The handlers of the internal listener."""
    quorum, service = routes.quorum, stages.cluster.node.service
    log_info = ReplicaLogInfoHandlers(
        stages.replication.registered_epoch, stages.storage.partitions, stages.world.workers
    )
    handlers: dict[Api[Any, Any], Handler] = {}
    own: dict[Api[Any, Any], Handler] = {
        API_VERSIONS: ApiVersionsHandler(
            stages.cluster.image, stages.cluster.node.quorum, handlers
        ).api_versions,
        VOTE: quorum.to_quorum,
        BEGIN_QUORUM_EPOCH: quorum.begin_epoch,
        END_QUORUM_EPOCH: quorum.to_quorum,
        FETCH: _fetch(stages, routes),
        FETCH_SNAPSHOT: quorum.to_quorum,
        UPDATE_RAFT_VOTER: quorum.update_raft_voter,
        ENVELOPE: stages.cluster.forwarding.envelopes(routes.forwarded),
        GET_REPLICA_LOG_INFO: log_info.get_replica_log_info,
        **{api: _controller(service, api) for api in SERVED},
    }
    handlers.update({api: routes.clients[api] for api in (*_AS_FOR_CLIENTS, *routes.forwarded)})
    handlers.update(routes.authorized(own))
    # Checks for ClusterAction itself: Produce of clients needs Write on a topic.
    handlers[PRODUCE] = stages.coordinators.broker_appends.produce
    return handlers


def _fetch(stages: Stages, routes: Routes) -> Handler:
    """The handler of Fetch. Requests that name no replica are served as those of clients."""
    replica = ReplicaFetchHandler(stages.replication.replicas.sessions, _replica_fetches(stages))
    return InternalFetchHandler(routes.quorum.to_quorum, replica, routes.fetch)


def repeated_on_internal_listener(stages: Stages) -> dict[tuple[int, int], Learn]:
    """The functions that recognise the requests that followers repeat, by API key and version."""
    learner = ReplicaFetchLearner(stages.replication.replicas.sessions, _replica_fetches(stages))
    return {(FETCH.key, version): learner.learn for version in learner.versions}


def _replica_fetches(stages: Stages) -> ReplicaEnvironment:
    call_soon = stages.listening.server.loop.call_soon
    throttles = stages.replication.replicas.throttles
    return ReplicaEnvironment(
        stages.storage.partitions,
        stages.storage.metrics,
        stages.world.workers,
        call_soon,
        stages.world.clock,
        throttles,
        stages.listening.access,
    )


def _controller(service: ControllerService, api: Api[Any, Any]) -> AsyncHandler:
    async def serve(context: Context, request: Any) -> Struct:
        answer: Struct = await service.handle(api, request, context.connection)
        return answer

    return serve
