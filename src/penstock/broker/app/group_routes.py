"""The table of the handlers for groups and transactions."""

from __future__ import annotations

from typing import Any

from penstock.broker.app.stages import Stages
from penstock.broker.base.context import Handler
from penstock.broker.handlers.find_coordinator import CoordinatorLookup
from penstock.broker.handlers.group_offsets import GroupOffsetHandlers
from penstock.broker.handlers.groups import GroupHandlers
from penstock.broker.handlers.transactions import TransactionHandlers
from penstock.broker.handlers.txn_offsets import TxnOffsetHandlers
from penstock.wire.api import Api
from penstock.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from penstock.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from penstock.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.heartbeat import HEARTBEAT
from penstock.wire.apis.join_group import JOIN_GROUP
from penstock.wire.apis.leave_group import LEAVE_GROUP
from penstock.wire.apis.list_groups import LIST_GROUPS
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS
from penstock.wire.apis.offset_commit import OFFSET_COMMIT
from penstock.wire.apis.offset_delete import OFFSET_DELETE
from penstock.wire.apis.offset_fetch import OFFSET_FETCH
from penstock.wire.apis.sync_group import SYNC_GROUP
from penstock.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT

__all__ = ["group_handlers"]


def group_handlers(stages: Stages, transactions: TransactionHandlers) -> dict[Api[Any, Any], Handler]:
    """The handlers of groups and of transactions, which their coordinators serve."""
    coordinators, image = stages.coordinators, stages.cluster.image
    groups = GroupHandlers(coordinators.groups.runtime, coordinators.regexes, stages.listening.access)
    offsets = GroupOffsetHandlers(coordinators.groups.runtime, image)
    lookup = CoordinatorLookup(
        coordinators.groups.runtime,
        coordinators.transactions.runtime,
        coordinators.shares.coordinator.runtime,
        coordinators.shares.is_enabled,
        image,
    )
    txn_offsets = TxnOffsetHandlers(
        coordinators.groups.runtime,
        image,
        coordinators.verifier,
        stages.world.clock.now_ms,
    )
    return {
        FIND_COORDINATOR: lookup.find_coordinator,
        ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
        ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
        END_TXN: transactions.end_txn,
        TXN_OFFSET_COMMIT: txn_offsets.txn_offset_commit,
        DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
        LIST_TRANSACTIONS: transactions.list_transactions,
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
