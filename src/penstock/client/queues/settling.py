"""The end of a message's lock: it is confirmed, or lost with a reason."""

from __future__ import annotations

from penstock.client.errors import LockLost
from penstock.client.queues.message import LockState, QueueMessage, TopicIdPartition

__all__ = ["confirm", "lock_lost", "lose", "remove_from"]


def remove_from(messages: dict[TopicIdPartition, dict[int, QueueMessage]], message: QueueMessage) -> None:
    found = messages.get(message.place)
    if found is not None:
        found.pop(message.offset, None)
        if not found:
            del messages[message.place]


def lock_lost(message: QueueMessage, reason: str) -> LockLost:
    return LockLost(message.topic_partition, message.offset, reason)


def lose(message: QueueMessage, reason: str) -> None:
    message.state, message.loss = LockState.LOST, reason
    _resolve(message, lock_lost(message, reason))


def confirm(message: QueueMessage) -> None:
    message.state = LockState.CONFIRMED
    _resolve(message, None)


def _resolve(message: QueueMessage, error: LockLost | None) -> None:
    for answer in (message.acknowledgement, message.renewal):
        if answer is not None:
            answer.resolve(error)
    message.renewal = None
