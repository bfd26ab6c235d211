"""The transaction coordinators of a cluster, over blocking connections.

A request is repeated until a coordinator has carried it out: the same outcome may be repeated after a lost
response, by another process, and days later. A coordinator knows a producer by its id and epoch, not by its
connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

from penstock.model.errors import ApiError, ErrorCode
from penstock.net.peer_errors import PeerGone, PeerRejected
from penstock.reading.connection import Attempts, Cluster
from penstock.twophase.outcomes import PreparedTransaction, end_request
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from penstock.wire.routing import TRANSACTION, Address, Reaction, reaction_to

__all__ = ["Coordinators"]

#: requests in flight to one coordinator, of the 256 that a broker accepts
_IN_FLIGHT_MAX: Final = 64

_T = TypeVar("_T")


class Coordinators:
    """Asks the coordinator of each transactional id. Used by one thread at a time.

    An ApiError has an error code that is still there when the time is up, a `PeerGone` no response at all.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._addresses: dict[str, Address] = {}

    def ask(self, transactional_id: str, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of the coordinator. Its error code, or that of FindCoordinator, asks for no retry."""

        failed: Any = api.response

        def once(_: Attempts) -> ResponseT:
            address = self.locate([transactional_id])[transactional_id]
            response: Any = self._cluster.call(address, api, request)
            if reaction_to(response.error_code) is not Reaction.FAIL:
                _check(response.error_code, f"{api.name} for {transactional_id}")
            return cast(ResponseT, response)

        try:
            return self._repeated(once, [transactional_id])
        except ApiError as e:
            if reaction_to(e.code) is Reaction.FAIL:
                return cast(ResponseT, failed(error_code=int(e.code)))
            raise

    def end(
        self, transactions: Iterable[PreparedTransaction], *, committed: bool
    ) -> list[tuple[PreparedTransaction, int]]:
        """End all. Returns those whose coordinator refuses for good, with its error code."""
        refused: list[tuple[PreparedTransaction, int]] = []
        left = {each.transactional_id: each for each in transactions}

        def once(attempts: Attempts) -> None:
            while left:
                self._end_some(left, refused, committed, attempts)

        self._repeated(once, left)
        return refused

    def listed(self, pattern: str = "", states: Sequence[str] = ()) -> list[str]:
        """The transactional ids that match `pattern`, of all brokers. A broker lists those it has loaded."""
        matching = pattern or None
        request = ListTransactionsRequest(state_filters=list(states), transactional_id_pattern=matching)

        def once(attempts: Attempts) -> list[str]:
            self._cluster.refresh([], attempts)
            found: set[str] = set()
            for node in list(self._cluster.view.nodes.values()):
                answer = self._cluster.call((node.host, node.port), LIST_TRANSACTIONS, request)
                _check(answer.error_code, f"ListTransactions of {node.host}:{node.port}")
                found.update(each.transactional_id for each in answer.transaction_states)
            return sorted(found)

        return self._repeated(once, ())

    def locate(self, transactional_ids: Sequence[str]) -> dict[str, Address]:
        """The coordinators of ids, from memory if they are known."""
        unknown = [each for each in transactional_ids if each not in self._addresses]
        if unknown:
            request = FindCoordinatorRequest(key=unknown[0], key_type=TRANSACTION, coordinator_keys=unknown)
            answer = self._cluster.call(self._cluster.view.next_node(), FIND_COORDINATOR, request)
            # Before version 4 the response is about one key and does not name it.
            each_of: Sequence[Coordinator | FindCoordinatorResponse] = answer.coordinators or [answer]
            for found in each_of:
                key = found.key if isinstance(found, Coordinator) else unknown[0]
                _check(found.error_code, f"FindCoordinator for {key}")
                self._addresses[key] = found.host, found.port
        return {each: self._addresses[each] for each in transactional_ids}

    def _end_some(
        self,
        left: dict[str, PreparedTransaction],
        refused: list[tuple[PreparedTransaction, int]],
        committed: bool,
        attempts: Attempts,
    ) -> None:
        by_address: dict[Address, list[PreparedTransaction]] = {}
        for transactional_id, address in self.locate(list(left)).items():
            by_address.setdefault(address, []).append(left[transactional_id])
        failed = ErrorCode.NONE
        for address, group in by_address.items():
            some = group[:_IN_FLIGHT_MAX]
            connection = self._cluster.connection(address)
            try:
                for transaction in some:
                    connection.send(END_TXN, end_request(transaction, committed))
                for transaction in some:
                    code = connection.receive().error_code
                    reaction = reaction_to(code)
                    if reaction is Reaction.NONE:
                        attempts.succeeded()
                    elif reaction is Reaction.FAIL:
                        refused.append((transaction, code))
                    else:
                        failed = ErrorCode(code)
                        continue
                    del left[transaction.transactional_id]
            finally:
                if not connection.is_idle:
                    connection.close()
        _check(failed, f"ending {', '.join(list(left)[:3])}")

    def _repeated(self, once: Callable[[Attempts], _T], transactional_ids: Iterable[str]) -> _T:
        attempts = Attempts(self._cluster.endpoint.total_timeout_s)
        while True:
            try:
                return once(attempts)
            except PeerRejected:
                raise
            except (PeerGone, ApiError) as e:
                if isinstance(e, ApiError) and reaction_to(e.code) is Reaction.FAIL:
                    raise
                attempts.failed(e)
                if isinstance(e, ApiError) and reaction_to(e.code) is Reaction.RETRY:
                    continue
            for each in transactional_ids:
                self._addresses.pop(each, None)
            self._cluster.refresh([], attempts)


def _check(code: int, what: str) -> None:
    if code:
        raise ApiError(ErrorCode(code), f"{what}: {ErrorCode(code).name}")
