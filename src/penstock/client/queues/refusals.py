"""Error codes of responses as errors of the client."""

from __future__ import annotations

from typing import Final

from penstock.client.errors import Refused
from penstock.model.errors import ErrorCode, error_name
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["refusal"]

#: of share groups
_ADVICE: Final[dict[int, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: "raise the feature share.version to 1 (`penstock cluster upgrade`)",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "request READ on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "request READ on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "request access to the cluster",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise group.share.max.size, or run fewer members",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group is a consumer group: choose another group",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group exists with another type, or was deleted: choose another group",
    ErrorCode.INVALID_REQUEST: "check the group, the topics and the settings",
    ErrorCode.INVALID_CONFIG: "choose a value that the broker allows",
}


def refusal(code: int, message: str | None, about: str, *, advised: bool = True) -> Refused:
    """The error for an error code of a response; `about` is what was refused.

    The advice is that for members of share groups.
    """
    text = f"{about}: {error_name(code)}" + (f", {message}" if message else "")
    advice = _ADVICE.get(code) if advised else None
    retriable = reaction_to(code) is not Reaction.FAIL
    return Refused(f"{text}. Advice: {advice}" if advice else text, code, retriable=retriable)
