"""Every API with a request, the operations that it needs, and the error without them (Kafka's KafkaApis)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.wire.apis import APIS
from penstock.wire.schema import Struct

OP = Operation
Needed = tuple[Operation, ResourceType, str]
CLUSTER: Final = (ResourceType.CLUSTER, "kafka-cluster")
TOPIC: Final = (ResourceType.TOPIC, "t")
GROUP: Final = (ResourceType.GROUP, "g")
TXN: Final = (ResourceType.TRANSACTIONAL_ID, "x")
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_ID: Final = bytes(range(16))


class Case(NamedTuple):
    """One request. `needs` maps each operation that is needed to the error without it."""

    key: int
    version: int
    request: Callable[[], Struct]
    needs: dict[Needed, ErrorCode]
    #: on the listener of the nodes
    internal: bool = False

    def __str__(self) -> str:
        return f"{APIS[self.key].name}-v{self.version}{'-internal' if self.internal else ''}"


def build(api_key: int, /, **fields: Any) -> Callable[[], Struct]:
    """A request from plain values: lists of dictionaries become the structures of their fields."""

    def make(struct: Any, values: dict[str, Any]) -> Struct:
        made = struct()
        for field in struct.fields:
            if field.name in values:
                setattr(made, field.name, convert(field.of, values[field.name]))
        return made  # type: ignore[no-any-return]

    def convert(of: Any, value: Any) -> Any:
        if isinstance(value, list):
            return [make(of, item) if isinstance(item, dict) else item for item in value]
        return make(of, value) if isinstance(value, dict) else value

    return lambda: make(APIS[api_key].request, fields)


def _case(api_key: int, version: int, needs: dict[Needed, ErrorCode], /, **fields: Any) -> Case:
    return Case(api_key, version, build(api_key, **fields), needs)


def _cluster(operation: Operation) -> dict[Needed, ErrorCode]:
    return {(operation, *CLUSTER): NO_CLUSTER}


def _topic(operation: Operation) -> dict[Needed, ErrorCode]:
    return {(operation, *TOPIC): NO_TOPIC}


def _group(operation: Operation) -> dict[Needed, ErrorCode]:
    return {(operation, *GROUP): NO_GROUP}


_INDEXED: Final = [{"name": "t", "partitions": [{"partition_index": 0}]}]
_ACTION: Final = _cluster(OP.CLUSTER_ACTION)
_TXN_WRITE: Final = {(OP.WRITE, *TXN): NO_TXN}

CASES: Final = [
    _case(2, 9, _topic(OP.DESCRIBE), topics=_INDEXED),
    _case(3, 12, _topic(OP.DESCRIBE), topics=[{"name": "t"}]),
    _case(3, 12, _topic(OP.DESCRIBE), topics=[{"name": None, "topic_id": TOPIC_ID}]),
    _case(8, 9, _group(OP.READ) | _topic(OP.READ), group_id="g", topics=_INDEXED),
    _case(
        8,
        10,
        _group(OP.READ) | _topic(OP.READ),
        group_id="g",
        topics=[{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0}]}],
    ),
    _case(
        9,
        1,
        _group(OP.DESCRIBE) | _topic(OP.DESCRIBE),
        group_id="g",
        topics=[{"name": "t", "partition_indexes": [0]}],
    ),
    _case(
        9,
        7,
        _group(OP.DESCRIBE) | _topic(OP.DESCRIBE),
        group_id="g",
        topics=[{"name": "t", "partition_indexes": [0]}],
    ),
    _case(
        9,
        10,
        _group(OP.DESCRIBE) | _topic(OP.DESCRIBE),
        groups=[{"group_id": "g", "topics": [{"topic_id": TOPIC_ID, "partition_indexes": [0]}]}],
    ),
    _case(10, 3, _group(OP.DESCRIBE), key="g"),
    _case(10, 6, _group(OP.DESCRIBE), coordinator_keys=["g"]),
    _case(10, 6, {(OP.DESCRIBE, *TXN): NO_TXN}, key_type=1, coordinator_keys=["x"]),
    _case(10, 6, _ACTION, key_type=2, coordinator_keys=["s"]),
    _case(11, 9, _group(OP.READ), group_id="g"),
    _case(12, 4, _group(OP.READ), group_id="g"),
    _case(13, 5, _group(OP.READ), group_id="g"),
    _case(14, 5, _group(OP.READ), group_id="g"),
    _case(15, 6, _group(OP.DESCRIBE), groups=["g"]),
    _case(19, 7, _topic(OP.CREATE), topics=[{"name": "t"}]),
    _case(20, 5, _topic(OP.DELETE), topic_names=["t"]),
    _case(20, 6, _topic(OP.DELETE), topics=[{"name": "t"}]),
    _case(20, 6, _topic(OP.DELETE), topics=[{"name": None, "topic_id": TOPIC_ID}]),
    _case(21, 2, _topic(OP.DELETE), topics=_INDEXED),
    _case(22, 4, _TXN_WRITE, transactional_id="x"),
    _case(
        22,
        6,
        _TXN_WRITE | {(OP.TWO_PHASE_COMMIT, *TXN): NO_TXN},
        transactional_id="x",
        enable_2pc=True,
    ),
    _case(22, 6, _TXN_WRITE, transactional_id="x", keep_prepared_txn=True),
    _case(22, 4, _cluster(OP.IDEMPOTENT_WRITE), transactional_id=None),
    _case(23, 4, _topic(OP.DESCRIBE), topics=[{"topic": "t", "partitions": [{"partition": 0}]}]),
    _case(
        24,
        3,
        _TXN_WRITE | _topic(OP.WRITE),
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[{"name": "t", "partitions": [0]}],
    ),
    _case(24, 4, _ACTION, transactions=[{"transactional_id": "x"}]),
    _case(25, 3, _TXN_WRITE | _group(OP.READ), transactional_id="x", group_id="g"),
    _case(26, 3, _TXN_WRITE, transactional_id="x"),
    _case(
        27,
        1,
        _cluster(OP.ALTER),
        markers=[{"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [0]}]}],
    ),
    _case(
        28,
        3,
        _TXN_WRITE | _group(OP.READ) | _topic(OP.READ),
        transactional_id="x",
        group_id="g",
        topics=_INDEXED,
    ),
    _case(29, 3, _cluster(OP.DESCRIBE)),
    _case(30, 3, _cluster(OP.ALTER), creations=[{"resource_name": "t"}]),
    _case(31, 3, _cluster(OP.ALTER), filters=[{}]),
    _case(32, 4, _topic(OP.DESCRIBE_CONFIGS), resources=[{"resource_type": 2, "resource_name": "t"}]),
    _case(32, 4, _group(OP.DESCRIBE_CONFIGS), resources=[{"resource_type": 32, "resource_name": "g"}]),
    *(
        _case(32, 4, _cluster(OP.DESCRIBE_CONFIGS), resources=[{"resource_type": n, "resource_name": "1"}])
        for n in (4, 8, 16)
    ),
    *(
        case
        for key in (33, 44)
        for case in (
            _case(key, 1, _topic(OP.ALTER_CONFIGS), resources=[{"resource_type": 2, "resource_name": "t"}]),
            _case(key, 1, _group(OP.ALTER_CONFIGS), resources=[{"resource_type": 32, "resource_name": "g"}]),
            _case(key, 1, _cluster(OP.ALTER_CONFIGS), resources=[{"resource_type": 4, "resource_name": "1"}]),
        )
    ),
    _case(44, 1, _cluster(OP.ALTER), resources=[{"resource_type": 100, "resource_name": "ops"}]),
    _case(34, 2, _cluster(OP.ALTER), dirs=[{"path": "/d", "topics": [{"name": "t", "partitions": [0]}]}]),
    _case(35, 4, _cluster(OP.DESCRIBE)),
    _case(37, 3, _topic(OP.ALTER), topics=[{"name": "t", "count": 2}]),
    _case(42, 2, _group(OP.DELETE), groups_names=["g"]),
    _case(43, 2, _cluster(OP.ALTER), topic_partitions=[{"topic": "t", "partitions": [0]}]),
    _case(45, 1, _cluster(OP.ALTER), topics=_INDEXED),
    _case(46, 0, _cluster(OP.DESCRIBE)),
    _case(47, 0, _group(OP.DELETE) | _topic(OP.READ), group_id="g", topics=_INDEXED),
    _case(48, 1, _cluster(OP.DESCRIBE_CONFIGS)),
    _case(49, 1, _cluster(OP.ALTER_CONFIGS), entries=[{"entity": [{"entity_type": "user"}]}]),
    _case(50, 0, _cluster(OP.DESCRIBE)),
    _case(51, 0, _cluster(OP.ALTER), deletions=[{"name": "u", "mechanism": 1}]),
    *(_case(key, 0, _ACTION) for key in (53, 54, 58, 59, 62, 63, 67, 70, 82)),
    _case(93, 0, _ACTION, topic_partitions=[{"topic_id": TOPIC_ID, "partitions": [0]}]),
    _case(52, 2, _ACTION),
    _case(56, 2, _ACTION),
    _case(55, 2, _cluster(OP.DESCRIBE)),
    _case(57, 2, _cluster(OP.ALTER)),
    Case(60, 2, build(60), _cluster(OP.ALTER), internal=True),
    _case(61, 0, _topic(OP.READ), topics=[{"name": "t", "partition_indexes": [0]}]),
    _case(64, 0, _cluster(OP.ALTER)),
    _case(65, 0, {(OP.DESCRIBE, *TXN): NO_TXN}, transactional_ids=["x"]),
    _case(68, 1, _group(OP.READ) | _topic(OP.DESCRIBE), group_id="g", subscribed_topic_names=["t"]),
    _case(69, 1, _group(OP.DESCRIBE), group_ids=["g"]),
    _case(74, 1, _cluster(OP.DESCRIBE_CONFIGS)),
    _case(75, 0, _topic(OP.DESCRIBE), topics=[{"name": "t"}]),
    _case(76, 1, _group(OP.READ) | _topic(OP.DESCRIBE), group_id="g", subscribed_topic_names=["t"]),
    _case(77, 1, _group(OP.DESCRIBE), group_ids=["g"]),
    _case(78, 2, _group(OP.READ), group_id="g", member_id="m"),
    _case(79, 2, _group(OP.READ), group_id="g", member_id="m"),
    *(
        _case(
            key, 0, _ACTION, group_id="g", topics=[{"topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}]
        )
        for key in (83, 84, 85, 86, 87)
    ),
    _case(
        88,
        0,
        _group(OP.READ) | _topic(OP.DESCRIBE),
        group_id="g",
        member_id="m",
        topology={"subtopologies": [{"subtopology_id": "0", "source_topics": ["t"]}]},
    ),
    _case(89, 0, _group(OP.DESCRIBE), group_ids=["g"]),
    _case(90, 1, _group(OP.DESCRIBE), groups=[{"group_id": "g", "topics": None}]),
    _case(
        91,
        0,
        _group(OP.READ) | _topic(OP.READ),
        group_id="g",
        topics=[{"topic_name": "t", "partitions": [{"partition_index": 0}]}],
    ),
    _case(92, 0, _group(OP.DELETE) | _topic(OP.READ), group_id="g", topics=[{"topic_name": "t"}]),
    _case(80, 0, _cluster(OP.ALTER)),
    _case(81, 0, _cluster(OP.ALTER)),
    # A replica id needs ClusterAction on every listener (CVE-2018-1288).
    _case(
        1,
        17,
        {(OP.CLUSTER_ACTION, *CLUSTER): NO_TOPIC},
        replica_state={"replica_id": 2},
        topics=[{"topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}],
    ),
    _case(1, 12, _ACTION, replica_id=2, topics=[{"topic": "__cluster_metadata"}]),
]
