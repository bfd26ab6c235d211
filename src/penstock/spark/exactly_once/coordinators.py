"""Requests to transaction coordinators: new epochs, the ends of transactions, and lists of transactional ids.

EndTxn comes from the driver, for transactions that tasks began on other connections: a coordinator knows a
producer by its id and epoch, not by its connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.model.errors import ApiError, ErrorCode
from penstock.net.peer_errors import PeerGone
from penstock.reading.connection import Attempts, Cluster
from penstock.spark.errors import ReadingError
from penstock.spark.exactly_once.decisions import Prepared
from penstock.spark.exactly_once.producing import Producer
from penstock.wire.apis.end_txn import END_TXN, EndTxnRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from penstock.wire.routing import TRANSACTION, Address, Reaction, reaction_to

__all__ = ["TRANSACTION_TIMEOUT_MS", "Coordinators", "DecisionBroken"]

#: of transactions that are not two-phase: the driver's, which last milliseconds
TRANSACTION_TIMEOUT_MS: Final = 20_000
#: of two-phase transactions, as Kafka's client names it
_NO_TIMEOUT_MS: Final = 0x7FFFFFFF
#: requests in flight to one coordinator, of the 256 that a broker accepts
_IN_FLIGHT_MAX: Final = 64
_NO_PRODUCER: Final = -1
#: The transaction has ended, or its producer was fenced: an abort has nothing left to do.
_ABORTED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class DecisionBroken(ReadingError):
    """A transaction of a decided batch was not committed by its coordinator."""


class Coordinators:
    """The transaction coordinators of a cluster; each request is repeated until its time is up."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._addresses: dict[str, Address] = {}

    def begin(self, transactional_id: str, *, two_phase: bool) -> Producer:
        """A new epoch. Earlier producers of the id are fenced, and their open transaction is aborted."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=_NO_TIMEOUT_MS if two_phase else TRANSACTION_TIMEOUT_MS,
            producer_id=_NO_PRODUCER,
            producer_epoch=_NO_PRODUCER,
            enable_2pc=two_phase,
        )
        attempts = Attempts(self._cluster.endpoint.total_timeout_s)
        while True:
            try:
                address = self.locate([transactional_id])[transactional_id]
                answer = self._cluster.call(address, INIT_PRODUCER_ID, request)
                self._check(answer.error_code, transactional_id, "InitProducerId")
                return Producer(transactional_id, answer.producer_id, answer.producer_epoch)
            except (PeerGone, ApiError) as e:
                self._retry(e, attempts, [transactional_id])

    def commit(self, transactions: Sequence[Prepared], *, is_resumed: bool) -> None:
        """Commit all. Ending a transaction twice in the same way is harmless.

        A resumed decision may name transactional ids that have ended, and have expired since.
        """
        gone = {ErrorCode.INVALID_PRODUCER_ID_MAPPING} if is_resumed else set()
        for prepared, code in self._end(transactions, committed=True):
            if code not in gone:
                raise DecisionBroken(
                    f"transaction {prepared.transactional_id} with {prepared.rows} rows is decided, and its "
                    f"coordinator answers {code.name}: something else has ended it"
                )

    def abort(self, transactions: Sequence[Prepared]) -> None:
        """Abort what is still open."""
        for prepared, code in self._end(transactions, committed=False):
            if code not in _ABORTED:
                raise ApiError(code, f"aborting {prepared.transactional_id}: {code.name}")

    def fence(self, transactional_ids: Iterable[str]) -> None:
        """Abort the open transactions of these ids, whatever their producers do later.

        The second abort leaves them in a state that is not listed again.
        """
        fenced = [self.begin(each, two_phase=False) for each in transactional_ids]
        self.abort([Prepared(*producer, rows=0) for producer in fenced])

    def listed(self, pattern: str, states: Sequence[str] = ()) -> list[str]:
        """The transactional ids that match `pattern`, of all coordinators."""
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=[], transactional_id_pattern=pattern
        )
        attempts = Attempts(self._cluster.endpoint.total_timeout_s)
        while True:
            try:
                self._cluster.refresh([])
                found: set[str] = set()
                for node in self._cluster.view.nodes.values():
                    answer = self._cluster.call((node.host, node.port), LIST_TRANSACTIONS, request)
                    self._check(answer.error_code, pattern, "ListTransactions")
                    found.update(each.transactional_id for each in answer.transaction_states)
                return sorted(found)
            except (PeerGone, ApiError) as e:
                self._retry(e, attempts, [])

    def _end(
        self, transactions: Sequence[Prepared], *, committed: bool
    ) -> Iterable[tuple[Prepared, ErrorCode]]:
        """End all. Returns those whose coordinator refuses for good, with its reason."""
        refused: list[tuple[Prepared, ErrorCode]] = []
        left = {each.transactional_id: each for each in transactions}
        attempts = Attempts(self._cluster.endpoint.total_timeout_s)
        while left:
            try:
                self._end_once(left, refused, committed, attempts)
            except (PeerGone, ApiError) as e:
                self._retry(e, attempts, list(left))
        return refused

    def _end_once(
        self,
        left: dict[str, Prepared],
        refused: list[tuple[Prepared, ErrorCode]],
        committed: bool,
        attempts: Attempts,
    ) -> None:
        by_address: dict[Address, list[Prepared]] = {}
        located = self.locate(list(left))
        for prepared in left.values():
            by_address.setdefault(located[prepared.transactional_id], []).append(prepared)
        failed: ApiError | None = None
        for address, group in by_address.items():
            some = group[:_IN_FLIGHT_MAX]
            connection = self._cluster.connection(address)
            try:
                for prepared in some:
                    connection.send(END_TXN, _end_request(prepared, committed))
                for prepared in some:
                    code = ErrorCode(connection.receive().error_code)
                    reaction = reaction_to(code)
                    if reaction is Reaction.NONE:
                        attempts.succeeded()
                    elif reaction is Reaction.FAIL:
                        refused.append((prepared, code))
                    else:
                        failed = ApiError(code, f"ending {prepared.transactional_id}: {code.name}")
                        continue
                    del left[prepared.transactional_id]
            finally:
                if not connection.is_idle:
                    connection.close()
        if failed is not None:
            raise failed

    def locate(self, transactional_ids: Sequence[str]) -> dict[str, Address]:
        """The coordinators of ids, from memory if known."""
        unknown = [each for each in transactional_ids if each not in self._addresses]
        if unknown:
            request = FindCoordinatorRequest(key=unknown[0], key_type=TRANSACTION, coordinator_keys=unknown)
            answer = self._cluster.call(self._cluster.view.next_node(), FIND_COORDINATOR, request)
            for found in answer.coordinators:
                self._check(found.error_code, found.key, "FindCoordinator")
                self._addresses[found.key] = found.host, found.port
        return {each: self._addresses[each] for each in transactional_ids}

    def _check(self, error_code: int, what: str, request: str) -> None:
        if error_code:
            code = ErrorCode(error_code)
            raise ApiError(code, f"{request} for {what}: {code.name}")

    def _retry(
        self, error: PeerGone | ApiError, attempts: Attempts, transactional_ids: Sequence[str]
    ) -> None:
        """Wait for the next try, with coordinators looked up again; raises if a retry is useless."""
        if isinstance(error, ApiError) and reaction_to(error.code) is Reaction.FAIL:
            raise error
        attempts.failed(error)
        if isinstance(error, ApiError) and reaction_to(error.code) is Reaction.RETRY:
            return
        for each in transactional_ids:
            self._addresses.pop(each, None)
        self._cluster.refresh([])


def _end_request(prepared: Prepared, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.epoch,
        committed=committed,
    )
