"""Answers of an authenticated connection that are still to come when its session ends (KIP-368).

Kafka closes a connection at the first request after the end of its session, and still sends the responses
that were pending. Here a request that waits, such as a long fetch, must not yield records after the end:

- Fetch and ShareFetch are answered with SASL_AUTHENTICATION_FAILED, and the client can authenticate again.
- A request that has changed something keeps its answer: the client has to learn the outcome.
- Any other request, for example JoinGroup, has no such answer: the connection is closed.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.model.errors import ErrorCode
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Parts
from penstock.security.principal import Session
from penstock.wire.apis import APIS
from penstock.wire.apis.fetch import FETCH, FetchResponse
from penstock.wire.apis.share_fetch import SHARE_FETCH, ShareFetchResponse
from penstock.wire.messages import encode_response

__all__ = ["SessionEnd"]

_HEADER: Final = struct.Struct(">hhi")
#: the first version of Fetch that has an error of the whole response
_FETCH_ERRORS_FROM: Final = 7
#: timers of the loop are set no further ahead
_TIMER_MAX_S: Final = 86_400.0
#: requests of clients, and of nodes, whose answer is the outcome of a change
_CHANGES: Final = frozenset(
    [
        "Produce",
        "OffsetCommit",
        "Heartbeat",
        "LeaveGroup",
        "CreateTopics",
        "DeleteTopics",
        "DeleteRecords",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
        "CreateAcls",
        "DeleteAcls",
        "AlterConfigs",
        "AlterReplicaLogDirs",
        "CreatePartitions",
        "DeleteGroups",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "AlterPartitionReassignments",
        "OffsetDelete",
        "AlterClientQuotas",
        "AlterUserScramCredentials",
        "UpdateFeatures",
        "UnregisterBroker",
        "PushTelemetry",
        "ShareAcknowledge",
        "AddRaftVoter",
        "RemoveRaftVoter",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
        "AllocateProducerIds",
        "AlterPartition",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControllerRegistration",
        "EndQuorumEpoch",
        "Envelope",
        "UpdateRaftVoter",
        "Vote",
        "WriteShareGroupState",
        "WriteTxnMarkers",
        "InitializeShareGroupState",
        "DeleteShareGroupState",
    ]
)
_REASON: Final = "the session has ended, and the client has not authenticated again"


class SessionEnd:
    """The pending answers of one connection whose session expires."""

    __slots__ = ("_connection", "_waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: The answers to come, each with the start of its request. Connections have a limit of them.
        self._waiting: deque[tuple[Deferred[Parts | None], bytes]] = deque()

    def begins(self, session: Session) -> None:
        """A session has begun, which replaces the one before."""
        assert session.expires_at is not None
        delay_s = min(session.expires_at - self._connection.loop_time(), _TIMER_MAX_S)

        def due() -> None:
            if self._connection.session is not session:
                return
            if self.has_come:
                self._end()
            else:
                self.begins(session)

        self._connection.call_later(max(0.0, delay_s), due)

    @property
    def has_come(self) -> bool:
        expires_at = self._connection.session.expires_at
        return expires_at is not None and self._connection.loop_time() >= expires_at

    def guard(self, answer: Deferred[Parts | None], frame: memoryview) -> None:
        """Keep an answer to come from being sent after the end of the session."""
        waiting = self._waiting
        while waiting and waiting[0][0].done:
            waiting.popleft()
        head = bytes(frame[: _HEADER.size])
        api = APIS.get(_HEADER.unpack(head)[0])
        if api is None or api.name in _CHANGES:
            return
        waiting.append((answer, head))
        convert = answer.convert
        if convert is not None:
            answer.convert = lambda message: self._instead(head) if self.has_come else _call(convert, message)

    def _end(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for answer, head in waiting:
            if not answer.done:
                answer.replace(self._instead(head))

    def _instead(self, head: bytes) -> Parts | None:
        """The answer to a request after the end of the session; closes the connection if there is none."""
        key, version, correlation_id = _HEADER.unpack(head)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        if key == FETCH.key and version >= _FETCH_ERRORS_FROM:
            return encode_response(FETCH, version, correlation_id, FetchResponse(error_code=code))
        if key == SHARE_FETCH.key:
            refused = ShareFetchResponse(error_code=code, error_message=_REASON)
            return encode_response(SHARE_FETCH, version, correlation_id, refused)
        # Not inside the caller, which may be about to send other responses.
        self._connection.call_later(0.0, lambda: self._connection.fail(_REASON))
        return None


def _call(convert: Callable[[Any], Parts | None], message: Any) -> Parts | None:
    return convert(message)
