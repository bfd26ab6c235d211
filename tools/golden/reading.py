"""What clients read from a broker: records, groups, rights, users, quotas, levels."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.cli.direct import HELLO, DirectLine
from penstock.cli.quotas import list_quotas
from penstock.cli.share_groups import ShareGroups
from penstock.net.access_client import list_acls, list_roles, list_users
from penstock.wire.apis.api_versions import API_VERSIONS

__all__ = ["basics", "everything", "records"]

_PATIENCE_S: Final = 60.0
#: read-only configs, which are not settings of a user
_TIMES: Final = frozenset({"penstock.topic.created.ms", "penstock.topic.changed.ms"})
#: where a topic's own config comes from
_DYNAMIC_TOPIC: Final = 1


def basics(bootstrap: str) -> dict[str, Any]:
    """Topics with their configs and records, groups with their offsets, finalized levels."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {
        name: t for name, t in admin.list_topics(timeout=_PATIENCE_S).topics.items() if name[:2] != "__"
    }
    groups = admin.list_consumer_groups(request_timeout=_PATIENCE_S).result()
    names = sorted(group.group_id for group in groups.valid if group.group_id in ("classic", "consumer"))
    with DirectLine(bootstrap, _PATIENCE_S) as line:
        levels = {e.name: e.max_version_level for e in line.send(API_VERSIONS, HELLO).finalized_features}
    return {
        "levels": levels,
        "topics": {name: _topic(admin, bootstrap, name, topics[name]) for name in sorted(topics)},
        "groups": {name: _offsets(admin, name) for name in names},
    }


def everything(bootstrap: str) -> dict[str, Any]:
    """`basics`, and what the first versions did not have."""
    with DirectLine(bootstrap, _PATIENCE_S) as line:
        acls = line.run(list_acls)
        users = line.run(list_users)
        roles = line.run(list_roles)
        quotas = list_quotas(line, {})
        share = [[p.topic, p.partition, p.start] for p in ShareGroups(line).places("workers")]
    return {
        **basics(bootstrap),
        "share_groups": {"workers": share},
        "acls": sorted([str(part) for part in acl] for acl in acls),
        "users": sorted([u["user"], u["mechanism"], u["iterations"]] for u in users),
        "roles": {name: sorted(members) for name, members in sorted(roles.items())},
        "quotas": sorted([q["user"], q["client-id"], q["quota"], q["limit"]] for q in quotas),
    }


def records(bootstrap: str, topic: str, partition: int, isolation: str) -> list[list[Any]]:
    """All records of a partition: offset, timestamp, key, value, headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "golden-reading",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            # The end of a partition is known when a fetch returns nothing.
            "fetch.wait.max.ms": 5,
        }
    )
    found: list[list[Any]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            messages = consumer.consume(1, _PATIENCE_S)
            if not messages:
                raise TimeoutError(f"{topic}-{partition} has no end")
            (message,) = messages
            error = message.error()
            if error is None:
                headers = [[name, _text(value)] for name, value in message.headers() or ()]
                found.append(
                    [
                        message.offset(),
                        message.timestamp()[1],
                        _text(message.key()),
                        _text(message.value()),
                        headers,
                    ]
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()


def _topic(admin: AdminClient, bootstrap: str, name: str, topic: Any) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(_PATIENCE_S)
    partitions = {}
    for number in sorted(topic.partitions):
        committed = records(bootstrap, name, number, "read_committed")
        uncommitted = records(bootstrap, name, number, "read_uncommitted")
        offsets = {each[0] for each in committed}
        partitions[str(number)] = {
            "committed": committed,
            "not_committed": [each for each in uncommitted if each[0] not in offsets],
        }
    return {
        "configs": {
            each.name: each.value
            for each in configs.values()
            if each.source == _DYNAMIC_TOPIC and each.name not in _TIMES
        },
        "partitions": partitions,
    }


def _offsets(admin: AdminClient, group: str) -> list[list[Any]]:
    """The committed offsets of a group, with their metadata."""
    wanted = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(wanted)[group].result(_PATIENCE_S)
    return sorted([p.topic, p.partition, p.offset, p.metadata or ""] for p in found.topic_partitions)


def _text(value: str | bytes | None) -> str | None:
    return value.decode("latin-1") if isinstance(value, bytes) else value
