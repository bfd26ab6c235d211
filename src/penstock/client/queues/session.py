"""The share session of one member with one broker. Pure: requests out, responses in.

A session has the partitions that the broker leads, and the messages that were acquired through it. Requests
are numbered by the session epoch, so there is one at a time. When the session ends, the broker releases all
that was acquired through it.

Invariant: a message is in exactly one of `_held`, `_pending` and `_sent`, or it is confirmed or lost. A
renewal is in addition to `_held`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from penstock.client.errors import MisusedClient
from penstock.client.queues.decoding import acquired_messages
from penstock.client.queues.fetches import Fetched, FetchLimits
from penstock.client.queues.message import (
    Acknowledgement,
    Decoders,
    LockState,
    QueueMessage,
    TopicIdPartition,
    confirm,
    lock_lost,
    lose,
    remove_from,
)
from penstock.client.queues.outcomes import Outcome, batches_of
from penstock.client.queues.refusals import refusal
from penstock.client.queues.session_topics import acknowledge_topics, fetch_topics, forgotten_topics
from penstock.model.errors import ErrorCode
from penstock.ports import Buffer
from penstock.wire.apis.share_acknowledge import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.wire.apis.share_fetch import AcquiredRecords, ShareFetchRequest, ShareFetchResponse
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["ShareSession"]

_OPENING: Final = 0
_CLOSING: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
_RECORD_LIMIT: Final = 1
#: Errors of an acknowledgement after which the record is still acquired: the client sends it again.
_REPEATED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
#: Errors of a session that a new session solves, now or later.
_PASSING: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
_Chosen: TypeAlias = dict[int, tuple[Outcome, QueueMessage | None]]


class ShareSession:
    """`topic_name` finds the name of a topic id. `on_work` is called when there is something to send.

    Why it has more than 25 methods: one per event of the session, on the same four sets of messages.
    """

    def __init__(
        self,
        group: str,
        member_id: str,
        limits: FetchLimits,
        decoders: Decoders,
        topic_name: Callable[[bytes], str | None],
        on_work: Callable[[], None],
    ) -> None:
        self._group = group
        self._member_id = member_id
        self._limits = limits
        self._decoders = decoders
        self._topic_name = topic_name
        self._on_work = on_work
        self._epoch = _OPENING
        self._known: set[TopicIdPartition] = set()
        self._wanted: set[TopicIdPartition] = set()
        self._held: dict[TopicIdPartition, dict[int, QueueMessage]] = {}
        self._renewals: dict[TopicIdPartition, dict[int, QueueMessage]] = {}
        self._pending: dict[TopicIdPartition, _Chosen] = {}
        self._sent: dict[TopicIdPartition, _Chosen] = {}
        self._sent_s = 0.0
        #: the duration of acquisition locks; 0 before the first response
        self.lock_s = 0.0
        #: the broker does not know renewals, or the group does not allow them
        self.cannot_renew = False
        #: a task waits for the answer to an acknowledgement
        self.is_urgent = False

    # -- state

    @property
    def is_open(self) -> bool:
        return self._epoch != _OPENING

    @property
    def wanted(self) -> Collection[TopicIdPartition]:
        return self._wanted

    @property
    def held_count(self) -> int:
        """The number of messages without an outcome."""
        return sum(map(len, self._held.values()))

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def has_renewals(self) -> bool:
        return bool(self._renewals)

    @property
    def needs_acknowledge(self) -> bool:
        """Returns true if acknowledgements cannot wait for, or cannot be part of, the next fetch."""
        return self.is_urgent or self.has_renewals or any(key not in self._wanted for key in self._pending)

    @property
    def is_idle(self) -> bool:
        return not self._wanted and not self._held and not self._pending

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Fetch these partitions from now on."""
        self._wanted = set(partitions)
        self._on_work()

    # -- outcomes

    def settle(self, message: QueueMessage, outcome: Outcome) -> Acknowledgement:
        """Choose the outcome of a message. It goes to the broker with the next request."""
        answer = Acknowledgement(self._hurry)
        if message.state is LockState.LOST:
            answer.resolve(lock_lost(message, message.loss))
        elif message.state is not LockState.HELD:
            raise MisusedClient(f"{message!r} is already acknowledged: a message has one outcome")
        elif outcome is Outcome.RENEW:
            if self.cannot_renew:
                raise MisusedClient("the broker or the group does not renew locks: accept or release instead")
            if message.renewal is not None:
                return message.renewal
            message.renewal = answer
            self._renewals.setdefault(message.place, {})[message.offset] = message
        else:
            message.acknowledgement = answer
            self._choose(message, outcome)
        self._on_work()
        return answer

    def _choose(self, message: QueueMessage, outcome: Outcome) -> None:
        message.state = LockState.SETTLED
        remove_from(self._held, message)
        if message.renewal is not None:
            remove_from(self._renewals, message)
            message.renewal.resolve(None)
            message.renewal = None
        self._pending.setdefault(message.place, {})[message.offset] = outcome, message

    def _hurry(self) -> None:
        self.is_urgent = True
        self._on_work()

    def drop(self, message: QueueMessage) -> None:
        """Forget a message whose lock has expired before it was delivered."""
        remove_from(self._held, message)
        remove_from(self._renewals, message)
        lose(message, "the lock expired before the message was delivered")

    def renew_due(self, now_s: float, renew_for_s: float) -> None:
        """Renew locks with less than half of their time left, of messages that were acquired recently."""
        if self.cannot_renew:
            return
        for messages in self._held.values():
            for message in messages.values():
                if (
                    message.renewal is None
                    and message.deadline_s - now_s < self.lock_s / 2
                    and now_s - message.acquired_s < renew_for_s
                ):
                    message.renewal = Acknowledgement(self._hurry)
                    self._renewals.setdefault(message.place, {})[message.offset] = message

    def forbid_renewals(self) -> None:
        """The broker does not renew locks: renewals on their way fail."""
        self.cannot_renew = True
        renewals, self._renewals = self._renewals, {}
        for messages in renewals.values():
            for message in messages.values():
                self._renewed(message, ErrorCode.UNSUPPORTED_VERSION, None)

    # -- requests

    def fetch_request(self, max_records: int, max_wait_ms: int, now_s: float) -> ShareFetchRequest:
        """Fetch up to `max_records`, with the pending acknowledgements of the wanted partitions."""
        self._sent_s = now_s
        batches = self._take({} if not self.is_open else self._wanted & self._pending.keys())
        added = self._wanted - self._known
        forgotten = self._known - self._wanted
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=self._limits.min_bytes,
            max_bytes=self._limits.max_bytes,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=_RECORD_LIMIT if max_records < self._limits.whole_batches_from else 0,
            topics=fetch_topics(added, batches),
            forgotten_topics_data=forgotten_topics(forgotten),
        )
        self._known = set(self._wanted)
        self._advance()
        return request

    def acknowledge_request(self, now_s: float) -> ShareAcknowledgeRequest:
        """Send all pending acknowledgements and renewals."""
        assert self.is_open, "nothing can be acknowledged before the first fetch"
        self._sent_s = now_s
        self.is_urgent = False
        renews = self.has_renewals
        for place, messages in self._renewals.items():
            self._pending.setdefault(place, {}).update(
                {offset: (Outcome.RENEW, message) for offset, message in messages.items()}
            )
        self._renewals = {}
        request = self._acknowledge(self._epoch, renews)
        self._advance()
        return request

    def close_request(self, now_s: float) -> ShareAcknowledgeRequest | None:
        """End the session with the pending acknowledgements; None if it is not open.

        The broker releases everything else.
        """
        if not self.is_open:
            return None
        self._sent_s = now_s
        self._renewals = {}
        request = self._acknowledge(_CLOSING, renews=False)
        self._epoch = _OPENING
        return request

    def _acknowledge(self, epoch: int, renews: bool) -> ShareAcknowledgeRequest:
        batches = self._take(list(self._pending))
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=acknowledge_topics(batches),
        )

    def _take(
        self, places: Collection[TopicIdPartition]
    ) -> dict[TopicIdPartition, list[AcknowledgementBatch]]:
        assert not self._sent, "one request at a time"
        self._sent = {place: self._pending.pop(place) for place in places}
        return {
            place: batches_of({offset: outcome for offset, (outcome, _) in chosen.items()})
            for place, chosen in self._sent.items()
        }

    def _advance(self) -> None:
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    # -- responses

    def fetched(self, response: ShareFetchResponse, now_s: float) -> Fetched:
        """Take the answers to acknowledgements, and the acquired messages."""
        code = response.error_code
        if code:
            return self._refused(code, response.error_message)
        self._set_lock(response.acquisition_lock_timeout_ms)
        messages: list[QueueMessage] = []
        is_stale, must_wait, failure = False, False, None
        for topic in response.responses:
            for data in topic.partitions:
                place = TopicIdPartition(topic.topic_id, data.partition_index)
                if place in self._sent:
                    self._answered(place, data.acknowledge_error_code, data.acknowledge_error_message, now_s)
                if data.error_code:
                    reaction = reaction_to(data.error_code)
                    is_stale |= reaction is Reaction.REFRESH
                    must_wait = True
                    if reaction is Reaction.FAIL:
                        name = self._topic_name(topic.topic_id) or topic.topic_id.hex()
                        about = f"{name}-{data.partition_index} cannot be read"
                        failure = refusal(data.error_code, data.error_message, about)
                elif data.acquired_records:
                    assert isinstance(data.records, Buffer)
                    messages += self._acquired(place, data.records, data.acquired_records)
        self._unanswered()
        return Fetched(messages, is_stale, failure, must_wait)

    def acknowledged(self, response: ShareAcknowledgeResponse, now_s: float) -> Fetched:
        """Take the answers to acknowledgements."""
        code = response.error_code
        if code:
            return self._refused(code, response.error_message)
        self._set_lock(response.acquisition_lock_timeout_ms)
        is_stale = False
        for topic in response.responses:
            for data in topic.partitions:
                place = TopicIdPartition(topic.topic_id, data.partition_index)
                is_stale |= reaction_to(data.error_code) is Reaction.REFRESH
                self._answered(place, data.error_code, data.error_message, now_s)
        self._unanswered()
        return Fetched([], is_stale)

    def end(self, reason: str) -> None:
        """The session has ended: the broker has released, or will release, all that was acquired."""
        self._epoch = _OPENING
        self._known = set()
        self.is_urgent = False
        chosen = [*self._pending.values(), *self._sent.values()]
        held = list(self._held.values())
        self._held, self._renewals, self._pending, self._sent = {}, {}, {}, {}
        for outcomes in chosen:
            for _, message in outcomes.values():
                if message is not None:
                    lose(message, reason)
        for messages in held:
            for message in messages.values():
                lose(message, reason)

    def _refused(self, code: int, text: str | None) -> Fetched:
        error = refusal(code, text, "the broker refuses the share session")
        self.end(str(error))
        if code in _PASSING or reaction_to(code) is not Reaction.FAIL:
            return Fetched([], must_wait=True)
        return Fetched([], failure=error)

    def _set_lock(self, lock_ms: int) -> None:
        if lock_ms > 0:
            self.lock_s = lock_ms / 1000

    def _acquired(
        self, place: TopicIdPartition, data: Buffer, ranges: list[AcquiredRecords]
    ) -> list[QueueMessage]:
        topic = self._topic_name(place.topic_id)
        assert topic is not None, "only assigned topics are fetched"
        acquired = acquired_messages(topic, place, data, ranges, self._decoders, self)
        # The broker has acquired them after the request was sent: the locks last until then at least.
        deadline_s = self._sent_s + self.lock_s
        held = self._held.setdefault(place, {}) if acquired.messages else {}
        for message in acquired.messages:
            message.acquired_s, message.deadline_s = self._sent_s, deadline_s
            held[message.offset] = message
        if acquired.outcomes:
            self._pending.setdefault(place, {}).update(
                {offset: (outcome, None) for offset, outcome in acquired.outcomes.items()}
            )
        return acquired.messages

    def _answered(self, place: TopicIdPartition, code: int, text: str | None, now_s: float) -> None:
        sent = self._sent.pop(place, {})
        for offset, (outcome, message) in sent.items():
            if code in _REPEATED and (message is None or now_s < message.deadline_s):
                self._pending.setdefault(place, {})[offset] = outcome, message
            elif message is None:
                continue
            elif outcome is Outcome.RENEW:
                self._renewed(message, code, text)
            elif code:
                lose(message, str(refusal(code, text, "the broker refuses the acknowledgement")))
            else:
                confirm(message)

    def _renewed(self, message: QueueMessage, code: int, text: str | None) -> None:
        renewal, message.renewal = message.renewal, None
        error = None
        if not code:
            message.deadline_s = self._sent_s + self.lock_s
        else:
            error = lock_lost(message, str(refusal(code, text, "the broker refuses to renew the lock")))
        if renewal is not None:
            renewal.resolve(error)

    def _unanswered(self) -> None:
        """Acknowledgements that the response does not mention have failed."""
        sent, self._sent = self._sent, {}
        for chosen in sent.values():
            for _, message in chosen.values():
                if message is not None:
                    lose(message, "the broker has not answered the acknowledgement")
