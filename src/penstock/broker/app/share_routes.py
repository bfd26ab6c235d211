"""The table of the handlers for share groups."""

from __future__ import annotations

from typing import Any

from penstock.broker.app.stages import Stages
from penstock.broker.base.context import Handler
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.coordinators.share_group_admin import ShareGroupAdmin
from penstock.broker.handlers.share_groups import ShareGroupHandlers
from penstock.broker.handlers.share_state import ShareStateHandlers
from penstock.broker.handlers.shares import ShareHandlers
from penstock.wire.api import Api
from penstock.wire.apis.alter_share_group_offsets import ALTER_SHARE_GROUP_OFFSETS
from penstock.wire.apis.delete_groups import DELETE_GROUPS
from penstock.wire.apis.delete_share_group_offsets import DELETE_SHARE_GROUP_OFFSETS
from penstock.wire.apis.delete_share_group_state import DELETE_SHARE_GROUP_STATE
from penstock.wire.apis.describe_share_group_offsets import DESCRIBE_SHARE_GROUP_OFFSETS
from penstock.wire.apis.initialize_share_group_state import INITIALIZE_SHARE_GROUP_STATE
from penstock.wire.apis.read_share_group_state import READ_SHARE_GROUP_STATE
from penstock.wire.apis.read_share_group_state_summary import READ_SHARE_GROUP_STATE_SUMMARY
from penstock.wire.apis.share_acknowledge import SHARE_ACKNOWLEDGE
from penstock.wire.apis.share_fetch import SHARE_FETCH
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT
from penstock.wire.apis.write_share_group_state import WRITE_SHARE_GROUP_STATE

__all__ = ["GROUP_CHANGES", "SHARE_STATE_APIS", "share_handlers"]

#: the APIs between brokers
SHARE_STATE_APIS: tuple[Api[Any, Any], ...] = (
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    WRITE_SHARE_GROUP_STATE,
    DELETE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
)
#: the APIs by which administrators change the state of groups
GROUP_CHANGES: tuple[Api[Any, Any], ...] = (
    DELETE_GROUPS,
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
)


def share_handlers(stages: Stages) -> dict[Api[Any, Any], Handler]:
    """The handlers of share groups, and of DeleteGroups, which deletes share groups in several steps."""
    shares, runtime = stages.coordinators.shares, stages.coordinators.groups.runtime
    admin = ShareGroupAdmin(runtime, shares.persister, stages.cluster.image, shares.end_offsets)
    groups = ShareGroupHandlers(runtime, admin, shares.is_enabled)
    state = ShareStateHandlers(shares.service)
    members = ShareHandlers(
        shares.partitions,
        stages.storage.partitions,
        stages.world.workers,
        LeaderHints(stages.cluster.image),
        stages.listening.access,
        shares.is_enabled,
    )
    return {
        DELETE_GROUPS: groups.delete_groups,
        SHARE_GROUP_HEARTBEAT: groups.share_group_heartbeat,
        SHARE_GROUP_DESCRIBE: groups.share_group_describe,
        SHARE_FETCH: members.share_fetch,
        SHARE_ACKNOWLEDGE: members.share_acknowledge,
        INITIALIZE_SHARE_GROUP_STATE: state.initialize,
        READ_SHARE_GROUP_STATE: state.read,
        WRITE_SHARE_GROUP_STATE: state.write,
        DELETE_SHARE_GROUP_STATE: state.delete,
        READ_SHARE_GROUP_STATE_SUMMARY: state.summary,
        DESCRIBE_SHARE_GROUP_OFFSETS: groups.describe_share_group_offsets,
        ALTER_SHARE_GROUP_OFFSETS: groups.alter_share_group_offsets,
        DELETE_SHARE_GROUP_OFFSETS: groups.delete_share_group_offsets,
    }
