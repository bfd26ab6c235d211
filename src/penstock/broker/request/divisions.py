"""The table of requests that are divided into parts if they are large.

By API, it says which list of a request is divided and which list of the response has the answers. An API is
in it if the elements of its list are independent of each other: a request with half of them, followed by a
request with the other half, has the same effect. The handler of any other API gets a large request as a
whole, and has to bound its time by itself (`Context.in_turns`).
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.request.division import Division
from penstock.wire.api import Api

__all__ = ["DIVISIONS", "division_of"]

#: elements of a part that changes the metadata, or asks other coordinators; each takes 100 to 200 µs
_CHANGED_ELEMENTS: Final = 20
#: elements of a part that describes groups, transactions or producers: one may have thousands of members
_DESCRIBED: Final = 1
#: the most records of one change in Kafka's controller
_RECORDS_MAX: Final = 10_000

_BY_PARTITION: Final = Division("topics:name/partitions", "topics:name/partitions")

_BY_TOPIC_ID: Final = Division("topics:topic_id/partitions", "results:topic_id/partitions")
_OF_RESOURCES: Final = Division(
    "resources",
    "responses",
    elements=_CHANGED_ELEMENTS,
    together=("resource_type", "resource_name"),
    answers_each=True,
    most=_RECORDS_MAX,
    weight=lambda resource: max(1, len(resource.configs)),
)

#: groups, transactions and share groups
GROUP_DIVISIONS: Final[dict[int, tuple[tuple[int, Division], ...]]] = {
    # LeaveGroup
    13: ((3, Division("members", "members")),),
    # AddPartitionsToTxn: the partitions of a transaction are added together or not at all
    24: ((4, Division("transactions", "results_by_transaction")),),
    # WriteTxnMarkers
    27: (
        (
            0,
            Division(
                "markers:producer_id/topics:name/partition_indexes",
                "markers:producer_id/topics:name/partitions",
            ),
        ),
    ),
    # TxnOffsetCommit
    28: ((0, _BY_PARTITION),),
    # DeleteGroups
    42: ((0, Division("groups_names", "results:group_id", is_unique=True)),),
    # OffsetDelete
    47: ((0, _BY_PARTITION),),
    # DescribeTransactions
    65: ((0, Division("transactional_ids", "transaction_states", elements=_DESCRIBED)),),
    # ConsumerGroupDescribe, ShareGroupDescribe, StreamsGroupDescribe
    69: ((0, Division("group_ids", "groups", elements=_DESCRIBED)),),
    77: ((0, Division("group_ids", "groups", elements=_DESCRIBED)),),
    89: ((0, Division("group_ids", "groups", elements=_DESCRIBED)),),
    # InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState
    83: ((0, _BY_TOPIC_ID),),
    84: ((0, _BY_TOPIC_ID),),
    85: ((0, _BY_TOPIC_ID),),
    86: ((0, _BY_TOPIC_ID),),
    # ReadShareGroupStateSummary
    87: ((0, Division("topics:topic_id/partitions", "results:topic_id/partitions", unless="shards")),),
    # DescribeShareGroupOffsets
    90: (
        (
            0,
            Division(
                "groups:group_id/topics:topic_name/partitions",
                "groups:group_id/topics:topic_name/partitions",
                elements=_CHANGED_ELEMENTS,
                in_place=True,
            ),
        ),
    ),
    # AlterShareGroupOffsets, DeleteShareGroupOffsets
    91: ((0, Division("topics:topic_name/partitions", "responses:topic_name/partitions")),),
    92: ((0, Division("topics", "responses")),),
}
#: changes of the metadata, and of data directories
CONTROLLER_DIVISIONS: Final[dict[int, tuple[tuple[int, Division], ...]]] = {
    # CreateTopics
    19: (
        (
            0,
            Division(
                "topics",
                "topics",
                elements=_CHANGED_ELEMENTS,
                together=("name",),
                most=_RECORDS_MAX,
                weight=lambda topic: len(topic.assignments) or max(1, topic.num_partitions),
            ),
        ),
    ),
    # DeleteTopics
    20: (
        (
            6,
            Division(
                "topics",
                "responses",
                elements=_CHANGED_ELEMENTS,
                together=("name", "topic_id"),
                most=_RECORDS_MAX,
            ),
        ),
        (
            0,
            Division(
                "topic_names",
                "responses",
                elements=_CHANGED_ELEMENTS,
                together=("name",),
                most=_RECORDS_MAX,
            ),
        ),
    ),
    # CreateAcls, DeleteAcls
    30: ((0, Division("creations", "results", elements=_CHANGED_ELEMENTS, most=_RECORDS_MAX)),),
    31: ((0, Division("filters", "filter_results", elements=_CHANGED_ELEMENTS, most=_RECORDS_MAX)),),
    # AlterConfigs
    33: ((0, _OF_RESOURCES),),
    # AlterReplicaLogDirs
    34: ((0, Division("dirs:path/topics:name/partitions", "results:topic_name/partitions")),),
    # DescribeLogDirs
    35: ((0, Division("topics:topic/partitions", "results:log_dir/topics:name/partitions")),),
    # CreatePartitions
    37: (
        (
            0,
            Division("topics", "results", elements=_CHANGED_ELEMENTS, together=("name",), most=_RECORDS_MAX),
        ),
    ),
    # ElectLeaders
    43: (
        (
            0,
            Division("topic_partitions:topic/partitions", "replica_election_results:topic/partition_result"),
        ),
    ),
    # IncrementalAlterConfigs
    44: ((0, _OF_RESOURCES),),
    # AlterPartitionReassignments, ListPartitionReassignments
    45: (
        (
            0,
            Division("topics:name/partitions", "responses:name/partitions", elements=_CHANGED_ELEMENTS),
        ),
    ),
    46: ((0, Division("topics:name/partition_indexes", "topics:name/partitions")),),
    # AlterClientQuotas
    49: (
        (
            0,
            Division(
                "entries", "entries", elements=_CHANGED_ELEMENTS, together=("entity",), most=_RECORDS_MAX
            ),
        ),
    ),
}

#: by API key: divisions with the first version that each of them is for, the newest first
DIVISIONS: Final[dict[int, tuple[tuple[int, Division], ...]]] = {
    # Produce
    0: (
        (
            0,
            Division(
                "topic_data:name,topic_id/partition_data",
                "responses:name,topic_id/partition_responses",
                also="node_endpoints:node_id",
            ),
        ),
    ),
    # ListOffsets
    2: ((0, _BY_PARTITION),),
    # Metadata
    3: ((0, Division("topics", "topics:name,topic_id", is_unique=True)),),
    # OffsetCommit
    8: ((0, Division("topics:name,topic_id/partitions", "topics:name,topic_id/partitions")),),
    # OffsetFetch
    9: (
        (
            8,
            Division(
                "groups:group_id/topics:name,topic_id/partition_indexes",
                "groups:group_id/topics:name,topic_id/partitions",
                in_place=True,
            ),
        ),
        (0, Division("topics:name/partition_indexes", "topics:name/partitions", in_place=True)),
    ),
    # FindCoordinator
    10: ((4, Division("coordinator_keys", "coordinators")),),
    # DescribeGroups
    15: ((0, Division("groups", "groups", elements=_DESCRIBED)),),
    # DeleteRecords
    21: ((0, _BY_PARTITION),),
    # OffsetForLeaderEpoch
    23: ((0, Division("topics:topic/partitions", "topics:topic/partitions")),),
    # DescribeConfigs: a topic has some 50 configs, a broker some 300
    32: (
        (
            0,
            Division(
                "resources:resource_type,resource_name/configuration_keys",
                "results:resource_type,resource_name/configs:name",
                elements=2,
                in_place=True,
            ),
        ),
    ),
    # DescribeUserScramCredentials: a name that was requested twice is an error of its own, see its handler
    # DescribeProducers
    61: (
        (
            0,
            Division("topics:name/partition_indexes", "topics:name/partitions", elements=_DESCRIBED),
        ),
    ),
    **GROUP_DIVISIONS,
    **CONTROLLER_DIVISIONS,
}


def division_of(api: Api[Any, Any], version: int) -> Division | None:
    """How requests of a version are divided; None if they are not."""
    for first, division in DIVISIONS.get(api.key, ()):
        if version >= first:
            return division
    return None
