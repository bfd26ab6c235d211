"""The table of all APIs and the operations that they need. An API that is not in it cannot be served.

Where Kafka's documentation and its code differ (Produce, ElectLeaders), the table follows the code.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.broker.authorization import (
    cluster,
    find_coordinator,
    group_offsets,
    groups,
    metadata,
    shares,
    streams,
    tokens,
    topics,
    transactions,
)
from penstock.broker.authorization.forms import Check, Environment, on_cluster, on_group, open_to_all
from penstock.broker.base.context import Handler
from penstock.security.acls import Operation
from penstock.wire.api import Api
from penstock.wire.apis.alter_configs import AlterConfigsResourceResponse as LegacyAlteration
from penstock.wire.apis.incremental_alter_configs import AlterConfigsResourceResponse as Alteration

__all__ = ["RULES", "Rule", "authorized"]

_OP = Operation
_ACTION: Final = on_cluster(_OP.CLUSTER_ACTION)
_ALTER: Final = on_cluster(_OP.ALTER)
_DESCRIBE: Final = on_cluster(_OP.DESCRIBE)
_ALTER_CONFIGS: Final = _OP.ALTER_CONFIGS


class Rule(NamedTuple):
    """The operations that an API needs, as text for readers, and the check."""

    needs: str
    check: Check


#: by API key: the modules of some APIs are imported only by brokers that serve them
RULES: Final[dict[int, Rule]] = {
    0: Rule("Topic Write; TransactionalId Write for transactional batches", topics.check_produce),
    1: Rule("Topic Read; with a replica id Cluster ClusterAction", cluster.check_internal_fetch),
    2: Rule("Topic Describe", topics.check_list_offsets),
    3: Rule("Topic Describe; Topic or Cluster Create to create topics", metadata.check_metadata),
    8: Rule("Group Read and Topic Read", group_offsets.check_offset_commit),
    9: Rule("Group Describe and Topic Describe", group_offsets.check_offset_fetch),
    10: Rule("Group or TransactionalId Describe", find_coordinator.check_find_coordinator),
    11: Rule("Group Read", on_group(_OP.READ)),
    12: Rule("Group Read", on_group(_OP.READ)),
    13: Rule("Group Read", on_group(_OP.READ)),
    14: Rule("Group Read", on_group(_OP.READ)),
    15: Rule("Group Describe", groups.check_describe_groups),
    16: Rule("Cluster Describe, or Group Describe of each group", groups.check_list_groups),
    17: Rule("nothing", open_to_all),
    18: Rule("nothing", open_to_all),
    19: Rule(
        "Topic or Cluster Create; Topic DescribeConfigs to see configs; Cluster Alter for `penstock.link`",
        topics.check_create_topics,
    ),
    20: Rule("Topic or Cluster Delete", topics.check_delete_topics),
    21: Rule("Topic Delete", topics.check_delete_records),
    22: Rule(
        "TransactionalId Write, and TwoPhaseCommit for two-phase transactions; without an id Cluster "
        "IdempotentWrite or Write on any topic",
        transactions.check_init_producer_id,
    ),
    23: Rule("Topic Describe, or Cluster ClusterAction", topics.check_epochs),
    24: Rule(
        "TransactionalId Write and Topic Write; from brokers ClusterAction", transactions.check_add_partitions
    ),
    25: Rule("TransactionalId Write and Group Read", transactions.check_add_offsets),
    26: Rule("TransactionalId Write", transactions.check_end_txn),
    27: Rule("Cluster Alter or ClusterAction", transactions.check_write_txn_markers),
    28: Rule("TransactionalId Write, Group Read and Topic Read", transactions.check_txn_offset_commit),
    29: Rule("Cluster Describe", _DESCRIBE),
    30: Rule("Cluster Alter", on_cluster(_OP.ALTER, refuse=cluster.refuse_acls)),
    31: Rule("Cluster Alter", on_cluster(_OP.ALTER, refuse=cluster.refuse_acl_deletions)),
    32: Rule(
        "DescribeConfigs on the Topic, the Group or the Cluster",
        topics.config_check(_OP.DESCRIBE_CONFIGS, "results"),
    ),
    33: Rule(
        "AlterConfigs on the Topic, the Group or the Cluster; Cluster Alter for roles, links and mirrors",
        topics.config_check(_ALTER_CONFIGS, "responses", LegacyAlteration),
    ),
    34: Rule("Cluster Alter", on_cluster(_OP.ALTER, refuse=cluster.refuse_log_dirs)),
    35: Rule("Cluster Describe", _DESCRIBE),
    36: Rule("nothing", open_to_all),
    37: Rule("Topic Alter", topics.check_create_partitions),
    38: Rule("nothing for an own token; User CreateTokens for one of another owner", tokens.check_create),
    39: Rule("nothing: the owner and the renewers of a token may renew it", open_to_all),
    40: Rule("nothing: the owner and the renewers of a token may end it", open_to_all),
    41: Rule(
        "nothing for own tokens; DelegationToken Describe or User DescribeTokens for others", open_to_all
    ),
    42: Rule("Group Delete", groups.check_delete_groups),
    43: Rule("Cluster Alter", on_cluster(_OP.ALTER, refuse=cluster.refuse_elections)),
    44: Rule(
        "AlterConfigs on the Topic, the Group or the Cluster; Cluster Alter for roles, links and mirrors",
        topics.config_check(_ALTER_CONFIGS, "responses", Alteration),
    ),
    45: Rule("Cluster Alter", on_cluster(_OP.ALTER, refuse=cluster.refuse_reassignments)),
    46: Rule("Cluster Describe", _DESCRIBE),
    47: Rule("Group Delete and Topic Read", group_offsets.check_offset_delete),
    48: Rule("Cluster DescribeConfigs", on_cluster(_OP.DESCRIBE_CONFIGS)),
    49: Rule("Cluster AlterConfigs", on_cluster(_ALTER_CONFIGS, refuse=cluster.refuse_quotas)),
    50: Rule("Cluster Describe", _DESCRIBE),
    51: Rule("Cluster Alter", on_cluster(_OP.ALTER, refuse=cluster.refuse_credentials)),
    52: Rule("Cluster ClusterAction", _ACTION),
    53: Rule("Cluster ClusterAction", _ACTION),
    54: Rule("Cluster ClusterAction", _ACTION),
    55: Rule("Cluster Describe", _DESCRIBE),
    56: Rule("Cluster ClusterAction", _ACTION),
    57: Rule("Cluster Alter", _ALTER),
    58: Rule("Cluster ClusterAction; the request inside what it needs itself", _ACTION),
    59: Rule("Cluster ClusterAction", _ACTION),
    60: Rule("nothing; Cluster Alter on the listener of the nodes", metadata.check_describe_cluster),
    61: Rule("Topic Read", topics.check_describe_producers),
    62: Rule("Cluster ClusterAction", _ACTION),
    63: Rule("Cluster ClusterAction", _ACTION),
    64: Rule("Cluster Alter", _ALTER),
    65: Rule(
        "TransactionalId Describe; Topic Describe of each topic", transactions.check_describe_transactions
    ),
    66: Rule("TransactionalId Describe of each transaction", transactions.check_list_transactions),
    67: Rule("Cluster ClusterAction", _ACTION),
    68: Rule(
        "Group Read; Topic Describe of the subscribed names and matches",
        groups.check_consumer_heartbeat,
    ),
    69: Rule("Group Describe; Topic Describe of the members' topics", groups.check_consumer_group_describe),
    70: Rule("Cluster ClusterAction", _ACTION),
    71: Rule("nothing", open_to_all),
    72: Rule("nothing", open_to_all),
    74: Rule("Cluster DescribeConfigs", on_cluster(_OP.DESCRIBE_CONFIGS)),
    75: Rule("Topic Describe", metadata.check_describe_topic_partitions),
    76: Rule("Group Read; Topic Describe of the subscribed names", groups.check_consumer_heartbeat),
    77: Rule("Group Describe; Topic Describe of the members' topics", shares.check_describe),
    78: Rule("Group Read and Topic Read", shares.check_member),
    79: Rule("Group Read and Topic Read", shares.check_member),
    80: Rule("Cluster Alter", _ALTER),
    81: Rule("Cluster Alter", _ALTER),
    82: Rule("Cluster ClusterAction", _ACTION),
    **dict.fromkeys(
        range(83, 88),
        Rule("Cluster ClusterAction", on_cluster(_OP.CLUSTER_ACTION, refuse=shares.refuse_state)),
    ),
    88: Rule(
        "Group Read; Topic Describe of the topology's topics; Topic or Cluster Create for internal topics",
        streams.check_heartbeat,
    ),
    89: Rule("Group Describe; Topic Describe of the topology's topics", streams.check_describe),
    90: Rule("Group Describe and Topic Describe", shares.check_describe_offsets),
    91: Rule("Group Read and Topic Read", shares.check_alter_offsets),
    92: Rule("Group Delete and Topic Read", shares.check_delete_offsets),
    93: Rule("Cluster ClusterAction", on_cluster(_OP.CLUSTER_ACTION, refuse=cluster.refuse_log_info)),
}


def authorized(environment: Environment, api: Api[Any, Any], handler: Handler) -> Handler:
    """The handler of an API with the check of its rule. An API without a rule needs ClusterAction."""
    rule = RULES.get(api.key)
    return (_ACTION if rule is None else rule.check)(environment, api, handler)
