"""How a fetcher's requests are written: at length, or, while it keeps up, by what they have in common.

A fetcher that keeps up asks for the same partitions on and on, and in its requests nothing changes but how
far it is. What they have in common (`AskForm`) holds for one session and one incarnation of this broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.net.calls import Call, Landing
from penstock.net.client import Peer
from penstock.replication.fetch_plan import PlannedFetch
from penstock.wire.replica_fetch import REPLICA_FETCH, ReplicaAsk
from penstock.wire.replica_form import MOST, AskForm

if TYPE_CHECKING:
    from penstock.broker.app.parts import BrokerParts as Broker

__all__ = ["ReplicaAsks"]

#: `ReplicaAsk(…)` without the call of a Python function
_new_ask: Final = tuple.__new__


class ReplicaAsks:
    """The requests of one fetcher, one after the other."""

    __slots__ = ("_broker", "_call", "_form", "_form_of")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: the last request that was written at length
        self._call: Call
        self._form: AskForm | None = None
        #: the session and the broker epoch of those that have this form
        self._form_of = (0, 0)

    @property
    def timeout_s(self) -> float:
        return self._broker.config.replica_socket_timeout_ms / 1000

    def post(self, peer: Peer, planned: PlannedFetch, wake_in_ms: int | None, answer: Landing) -> None:
        """Ask; the leader may wait as long as it wants, or until we have more to ask for."""
        if wake_in_ms is None and self._form is not None and self._repeat(peer, planned):
            return
        ask = self.ask_of(planned, wake_in_ms)
        self._call = peer.post(REPLICA_FETCH, ask, self.timeout_s, answer)
        if wake_in_ms is None and planned.session_epoch and len(ask.wanted) == 1 and not ask.forgotten:
            is_newest = peer.speaks(REPLICA_FETCH) == REPLICA_FETCH.max_version
            self._form = AskForm(peer.client_id, ask) if is_newest else None
            self._form_of = (planned.session_id, ask.broker_epoch)

    def forget(self) -> None:
        """Something went wrong: whom we ask next may be somebody else."""
        self._form = None

    def _repeat(self, peer: Peer, planned: PlannedFetch) -> bool:
        """Ask what differs from what was asked before in nothing but how far we are; False if it does."""
        session_id, session_epoch, partitions, forgotten = planned
        form, broker = self._form, self._broker
        if (
            form is None
            or forgotten
            or not 0 < len(partitions) <= MOST
            or self._form_of != (session_id, broker.broker_epoch)
        ):
            return False
        most = broker.config.replica_fetch_max_bytes
        topic_id, _ = next(iter(partitions))
        fields: list[Any] = [session_epoch, 2, topic_id, len(partitions) + 1]
        for (of_topic, index), (offset, last_fetched_epoch, leader_epoch, start) in partitions.items():
            if of_topic != topic_id:
                return False
            fields += (index, leader_epoch, offset, last_fetched_epoch, start, most, 0)
        return peer.repeat(self._call, form.write, fields)

    def ask_of(self, planned: PlannedFetch, wake_in_ms: int | None) -> ReplicaAsk:
        broker, config = self._broker, self._broker.config
        session_id, session_epoch, partitions, forgotten = planned
        most = config.replica_fetch_max_bytes
        wanted = []
        for (topic_id, index), (offset, last_fetched_epoch, leader_epoch, start) in partitions.items():
            wanted.append((topic_id, index, leader_epoch, offset, last_fetched_epoch, start, most))
        longest_ms = config.replica_fetch_wait_max_ms
        asked = (
            longest_ms if wake_in_ms is None else max(0, min(longest_ms, wake_in_ms)),
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            session_id,
            session_epoch,
            broker.node_id,
            broker.broker_epoch,
            wanted,
            forgotten,
            True,
        )
        return _new_ask(ReplicaAsk, asked)
