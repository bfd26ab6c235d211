"""Documented differences: answers that may differ from Apache Kafka's, each with its reason.

`docs/differential.md` is rendered from this list, so that an entry without a reason cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from differential.compare import ABSENT, Difference
from differential.connection import NOT_UTF8
from differential.normalise import NO_ERROR_TEXT, TEXT, Closed
from differential.operations import Operation
from penstock.model.errors import ErrorCode

__all__ = ["ALLOWED", "Allowed", "is_allowed"]

#: the end of the decoder's message for a length that stands for nothing
_NEGATIVE_LENGTH: Final = ": length below zero"
Applies = Callable[[Operation, Difference], bool]


def _always(operation: Operation, difference: Difference) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Allowed:
    """A field of an API's response that may differ where `applies` says so."""

    id: str
    #: the API's name; None for all
    api: str | None
    #: the path without indexes, or `*` and how it ends
    fields: str
    reason: str
    applies: Applies = _always

    def covers(self, operation: Operation, difference: Difference) -> bool:
        return (
            self.api in (None, operation.api.name)
            and self._matches(difference.fields)
            and self.applies(operation, difference)
        )

    def _matches(self, fields: str) -> bool:
        return fields.endswith(self.fields[1:]) if self.fields.startswith("*") else fields == self.fields


def _ours_only(_: Operation, difference: Difference) -> bool:
    return bool(difference.theirs == ABSENT)


def _same_value(_: Operation, difference: Difference) -> bool:
    ours, theirs = (str(value).strip().lower() for value in (difference.ours, difference.theirs))
    try:
        return ours == theirs or float(ours) == float(theirs)
    except ValueError:
        return False


def _not_utf8_or_negative(_: Operation, difference: Difference) -> bool:
    """Returns true if Penstock closed the connection for one of the two documented causes."""
    ours = difference.ours
    return isinstance(ours, Closed) and (ours.cause == NOT_UTF8 or ours.cause.endswith(_NEGATIVE_LENGTH))


def _reason_or_none(_: Operation, difference: Difference) -> bool:
    return (difference.ours, difference.theirs) in ((TEXT, None), (None, NO_ERROR_TEXT))


def _same_number(_: Operation, difference: Difference) -> bool:
    """Returns true if both lists have a partition at this index, so that only its number differs."""
    return isinstance(difference.ours, int) and isinstance(difference.theirs, int)


ALLOWED: Final[tuple[Allowed, ...]] = (
    Allowed(
        "partition-among-equals",
        None,
        "*assignment.topic_partitions.partitions",
        "Where members with different subscriptions have equally many partitions, the `uniform` assignor may "
        "give a partition to any of them: Penstock to the first by member id, Kafka to the first in its hash "
        "table. The numbers of partitions per member and topic are the same.",
        _same_number,
    ),
    Allowed(
        "waiting-heartbeat-interval",
        "ConsumerGroupHeartbeat",
        "heartbeat_interval_ms",
        "A member that waits for partitions is given a shorter heartbeat interval, so that it gets released "
        "partitions within half a second.",
        lambda _, difference: difference.ours < difference.theirs,
    ),
    Allowed(
        "waiting-streams-heartbeat-interval",
        "StreamsGroupHeartbeat",
        "heartbeat_interval_ms",
        "A member that waits for tasks, an assignment or internal topics is given a shorter heartbeat "
        "interval.",
        lambda _, difference: difference.ours < difference.theirs,
    ),
    Allowed(
        "repeated-tasks",
        "StreamsGroupHeartbeat",
        "*_tasks",
        "A member that reports other tasks than it has been assigned is told its tasks again: the response "
        "with them may have been lost.",
        lambda operation, difference: (
            getattr(operation.request, "member_epoch", 0) > 0 and difference.theirs is None
        ),
    ),
    Allowed(
        "own-topic-configs",
        "CreateTopics",
        "topics.configs",
        "Penstock has topic configs of its own, such as `unclean.recovery.strategy`.",
        _ours_only,
    ),
    Allowed(
        "own-topic-configs-described",
        "DescribeConfigs",
        "results.configs",
        "Penstock has topic configs of its own, such as `unclean.recovery.strategy`.",
        _ours_only,
    ),
    Allowed(
        "error-messages",
        None,
        "*error_message",
        "Penstock gives a reason where Kafka gives none, and none where Kafka's says `NONE`. Clients decide "
        "by the error code.",
        _reason_or_none,
    ),
    Allowed(
        "validated-topic-id",
        "CreateTopics",
        "topics.topic_id",
        "A topic that is only validated has no id; Kafka answers with one that no topic will have.",
        lambda operation, _: bool(getattr(operation.request, "validate_only", False)),
    ),
    Allowed(
        "aborted-transactions",
        "Fetch",
        "responses.partitions.aborted_transactions",
        "Where no record is returned there is no aborted transaction either: Penstock answers with an empty "
        "list, Kafka with null in some of these cases.",
        lambda _, difference: not difference.ours and not difference.theirs,
    ),
    Allowed(
        "created-config-values",
        "CreateTopics",
        "topics.configs.value",
        "The response shows configs as they take effect (`false`), as DescribeConfigs does in both; Kafka's "
        "shows them as they were written (`FALSE`, `0`).",
        _same_value,
    ),
    Allowed(
        "deleted-topic-in-a-session",
        "Fetch",
        "responses.partitions.error_code",
        "A fetch session has a topic by its id that was deleted since: Penstock answers UNKNOWN_TOPIC_ID, as "
        "to every id that no topic has, Kafka UNKNOWN_TOPIC_OR_PARTITION. Clients refresh their metadata.",
        lambda _, d: (d.ours, d.theirs) == (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ),
    Allowed(
        "malformed-requests",
        None,
        "",
        "A request with a text that is not UTF-8, or with a length below -1, is malformed, so Penstock "
        "closes the connection. Kafka replaces the bytes of such a text, takes such a length for null, and "
        "answers.",
        _not_utf8_or_negative,
    ),
)


def is_allowed(
    operation: Operation, difference: Difference, allowed: Sequence[Allowed] = ALLOWED
) -> Allowed | None:
    """The entry that covers a difference, if there is one."""
    return next((entry for entry in allowed if entry.covers(operation, difference)), None)
