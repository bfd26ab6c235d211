"""Topics that the config file declares: missing ones are created at start, existing ones are never changed.

If an existing topic differs from its declaration, the difference is logged. Changing the topic could move or
delete data without an operator's request. If brokers or a controller are missing, the creation is retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.base.logs import get_logger
from penstock.metadata.topics import NewTopic
from penstock.model.config import TOPIC_KEYS, DeclaredTopic
from penstock.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["create_declared", "keep_creating"]

log = get_logger("declared_topics")
#: errors that may disappear when other brokers have started
_WAITS: Final = frozenset(
    {
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
#: how long topics wait for all voters, so that their replicas are spread over all of them
_PATIENCE_S: Final = 5.0
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_LIMIT_S: Final = 5.0


async def create_declared(
    broker: Broker, topics: Iterable[DeclaredTopic], *, waited_s: float = 0.0
) -> list[DeclaredTopic]:
    """Create missing topics; returns those that have to wait, which are logged as warnings only once."""
    log_waiting = log.debug if waited_s else log.warning
    absent = _absent(broker) if waited_s < _PATIENCE_S else ""
    waiting = []
    for topic in topics:
        if topic.name in broker.stages.cluster.image.topics:
            _report_differences(broker, topic)
            continue
        if absent:
            waiting.append(topic)
            log_waiting("topic_waits", topic=topic.name, reason=absent)
            continue
        try:
            await broker.stages.cluster.topics.create(
                NewTopic(topic.name, topic.partitions, topic.replication_factor, {}, topic.configs)
            )
            log.info("topic_created", topic=topic.name)
        except ApiError as error:
            if error.code in _WAITS:
                waiting.append(topic)
                log_waiting("topic_waits", topic=topic.name, reason=str(error))
            elif error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                log.error("topic_refused", topic=topic.name, reason=str(error))
    return waiting


async def keep_creating(broker: Broker, waiting: Sequence[DeclaredTopic]) -> None:
    """Retry with growing pauses until all topics exist."""
    pause_s, waited_s = _PAUSE_FIRST_S, 0.0
    while waiting:
        await asyncio.sleep(pause_s)
        waited_s += pause_s
        pause_s = min(1.5 * pause_s, _PAUSE_LIMIT_S)
        waiting = await create_declared(broker, waiting, waited_s=waited_s)


def _absent(broker: Broker) -> str:
    """The voters that are not registered as brokers yet: they would get no replicas of a new topic."""
    brokers = broker.stages.cluster.image.brokers
    absent = [id_ for id_ in broker.stages.config.quorum_voters if id_ not in brokers or brokers[id_].fenced]
    return f"broker {', '.join(map(str, absent))} has not started yet" if absent else ""


def _report_differences(broker: Broker, topic: DeclaredTopic) -> None:
    for name, declared, actual in _differences(broker, topic):
        log.warning("topic_differs", topic=topic.name, setting=name, declared=declared, actual=actual)


def _differences(broker: Broker, topic: DeclaredTopic) -> Iterator[tuple[str, object, object]]:
    image = broker.stages.cluster.image
    partitions = image.topics[topic.name].partitions
    replicas = min(len(partition.replicas) for partition in partitions.values())
    for name, declared, actual in (
        ("partitions", topic.partitions, len(partitions)),
        ("replication_factor", topic.replication_factor, replicas),
    ):
        if declared not in (-1, actual):
            yield name, declared, actual
    overrides = image.topic_configs(topic.name)
    for name, text in topic.configs.items():
        key = TOPIC_KEYS[name]
        value = key.parse(overrides[name]) if name in overrides else broker.stages.config.topic_defaults[name]
        if value != key.parse(text):
            yield name, text, key.format(value)
