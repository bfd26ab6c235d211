"""What nodes ask each other on the internal listener; none of that is served to clients.

Operators reach the controllers here, too (KIP-919): what only the active one can do is done for whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.handlers import FORWARDED, HANDLERS
from penstock.broker.handlers.api_versions import api_versions
from penstock.broker.handlers.quorum import ask_quorum, begin_epoch, fetch, update_raft_voter
from penstock.broker.handlers.replica_log_info import get_replica_log_info
from penstock.broker.node.controller_service import SERVED
from penstock.broker.request.dispatch import Handler
from penstock.broker.request.forwarding import carry_out
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.begin_quorum_epoch import BEGIN_QUORUM_EPOCH
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from penstock.wire.apis.describe_configs import DESCRIBE_CONFIGS
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from penstock.wire.apis.end_quorum_epoch import END_QUORUM_EPOCH
from penstock.wire.apis.envelope import ENVELOPE, EnvelopeRequest, EnvelopeResponse
from penstock.wire.apis.fetch_snapshot import FETCH_SNAPSHOT
from penstock.wire.apis.get_replica_log_info import GET_REPLICA_LOG_INFO
from penstock.wire.apis.list_offsets import LIST_OFFSETS
from penstock.wire.apis.metadata import METADATA
from penstock.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from penstock.wire.apis.update_raft_voter import UPDATE_RAFT_VOTER
from penstock.wire.apis.vote import VOTE
from penstock.wire.replica_fetch import REPLICA_FETCH
from penstock.wire.schema import Struct

__all__ = ["INTERNAL_HANDLERS"]

_AS_FOR_CLIENTS: Final[tuple[Api[Any, Any], ...]] = (
    METADATA,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    *FORWARDED,
)
_CARRIED: Final = {api.key: (api, handler) for api, handler in FORWARDED.items()}


async def _envelope(context: Context, request: EnvelopeRequest) -> EnvelopeResponse:
    return await carry_out(context.broker, context, request, _CARRIED)


def _controller(api: Api[Any, Any]) -> Callable[[Context, Any], Coroutine[Any, Any, Struct]]:
    async def serve(context: Context, request: Any) -> Struct:
        answer: Struct = await context.broker.node.service.ask(api, request, context.connection)
        return answer

    return serve


INTERNAL_HANDLERS: Final[dict[Api[Any, Any], Handler]] = {
    API_VERSIONS: api_versions,
    VOTE: ask_quorum,
    BEGIN_QUORUM_EPOCH: begin_epoch,
    END_QUORUM_EPOCH: ask_quorum,
    REPLICA_FETCH: fetch,
    FETCH_SNAPSHOT: ask_quorum,
    UPDATE_RAFT_VOTER: update_raft_voter,
    ENVELOPE: _envelope,
    GET_REPLICA_LOG_INFO: get_replica_log_info,
    **{api: HANDLERS[api] for api in _AS_FOR_CLIENTS},
    **{api: _controller(api) for api in SERVED},
}
