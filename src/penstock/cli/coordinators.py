"""Requests to the coordinator of a group, for groups that librdkafka does not know."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from penstock.cli.direct import DirectLine, NoAnswer, refuse
from penstock.model.addresses import address_text
from penstock.wire.api import Api
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.routing import Reaction, coordinator_in, coordinator_request, reaction_to

__all__ = ["at_coordinator"]

_RETRY_S: Final = 0.1


def at_coordinator(
    line: DirectLine,
    group: str,
    api: Api[Any, Any],
    request: Any,
    code_of: Callable[[Any], int],
    about: str,
) -> tuple[int, Any]:
    """The id of the coordinator's broker and its response, once the group has a coordinator.

    `code_of` returns the error code of a response: a coordinator may load the group, or have moved.
    """
    deadline = time.monotonic() + line.timeout_s
    while True:
        node, address, code = _coordinator(line, group, about)
        if not code:
            response = line.send_each([address], api, request)[address]
            if response is None:
                raise NoAnswer(f"{address}, the coordinator of {group}, does not answer {api.name}")
            code = code_of(response)
            if reaction_to(code) not in (Reaction.FIND_COORDINATOR, Reaction.RETRY):
                return node, response
        if time.monotonic() + _RETRY_S > deadline:
            refuse(code, None, about)
        time.sleep(_RETRY_S)


def _coordinator(line: DirectLine, group: str, about: str) -> tuple[int, str, int]:
    """(broker, address, error code), where the error is one that passes."""
    found = coordinator_in(line.send(FIND_COORDINATOR, coordinator_request(group)))
    if reaction_to(found.error_code) is Reaction.FAIL:
        refuse(found.error_code, found.error_message, about)
    return found.node_id, address_text(found.host, found.port), found.error_code
