"""Why a part of a page is not known, or not complete.

Invariant: a part is loading, refused, unknown, or known. Only a part that is known without a gap may be shown
as empty or as zero. `static/states.js` has the texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.model.errors import ErrorCode

__all__ = ["REFUSED", "UNKNOWN", "Gap", "gap_of_brokers", "gap_of_code", "in_words"]

REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"

#: texts for errors whose names do not tell a user what to do
_WORDS: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker has failed; its log has the reason",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist, or this user may not see it",
    ErrorCode.UNKNOWN_TOPIC_ID: "it does not exist any more",
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader now",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "its leader has just changed: try again",
    ErrorCode.REQUEST_TIMED_OUT: "the brokers did not finish in time",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker is not available",
    ErrorCode.MESSAGE_TOO_LARGE: "the message is larger than the topic allows (max.message.bytes)",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is starting: try again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available now",
    ErrorCode.NOT_COORDINATOR: "its coordinator has just changed: try again",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "this name is not allowed for a topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: "it has fewer in-sync replicas than min.insync.replicas",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop them first",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user has no right to it",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user has no right to the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user has no right to it in this cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user has no right to the transactional id",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already",
    ErrorCode.INVALID_PARTITIONS: "this number of partitions is not allowed",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are not enough brokers for this number of replicas",
    ErrorCode.INVALID_CONFIG: "a config has a value that is not allowed",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.OFFSET_OUT_OF_RANGE: "there is no such offset",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer",
    ErrorCode.UNSUPPORTED_VERSION: "the brokers do not support it",
    ErrorCode.POLICY_VIOLATION: "a policy of the brokers does not allow it",
}


_REFUSALS: Final = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))


def in_words(code: int) -> str:
    """A Kafka error for a person: never the bare name of a constant."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"the broker has returned error {code}"
    return _WORDS.get(known, known.name.replace("_", " ").lower())


class Gap(NamedTuple):
    """Why a part is missing (`REFUSED` or `UNKNOWN`), in words."""

    state: str
    reason: str

    def shown(self) -> dict[str, Any]:
        return {"state": self.state, "reason": self.reason}


def gap_of_code(code: int, message: str | None = None) -> Gap | None:
    """The gap that an error code leaves; None for NONE."""
    if not code:
        return None
    return Gap(REFUSED if code in _REFUSALS else UNKNOWN, message or in_words(code))


def gap_of_brokers(gaps: Mapping[int, Gap], others: Iterable[str] = ()) -> Gap | None:
    """One gap for those that several brokers leave, and for `others`; None if there is none.

    It is a refusal only if every broker refuses.
    """
    reasons = []
    for reason in dict.fromkeys(gap.reason for gap in gaps.values()):
        brokers = [str(broker) for broker, gap in sorted(gaps.items()) if gap.reason == reason]
        if all(gap.state == REFUSED for gap in gaps.values()):
            reasons.append(reason)
        else:
            reasons.append(f"broker{'s' * (len(brokers) > 1)} {', '.join(brokers)}: {reason}")
    reasons += others
    if not reasons:
        return None
    is_refused = bool(gaps) and all(gap.state == REFUSED for gap in gaps.values())
    return Gap(REFUSED if is_refused else UNKNOWN, "; ".join(reasons))
