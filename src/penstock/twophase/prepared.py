"""Prepare and decide transactions over blocking connections.

An outcome is asked for until a coordinator has it: the same outcome may be repeated after a lost response, by
another process, and days later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.model.errors import ErrorCode, UnsupportedVersion, error_name
from penstock.net.peer_errors import PeerGone, PeerRejected
from penstock.reading.connection import Attempts, Cluster
from penstock.twophase.outcomes import (
    INIT_TWO_PHASE,
    PreparedTransaction,
    TwoPhaseError,
    Verdict,
    abort_request,
    end_refusal,
    end_request,
    end_verdict,
    keep_refusal,
    keep_request,
    prepared_in,
)
from penstock.wire.api import Api
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from penstock.wire.routing import (
    TRANSACTION,
    Address,
    Reaction,
    coordinator_in,
    coordinator_request,
    reaction_to,
)
from penstock.wire.schema import Struct

__all__ = ["PreparedTransactions"]

#: the states of a transaction without an outcome
_OPEN: Final = ("Ongoing",)


class PreparedTransactions:
    """The transactions of an external coordinator in one cluster. Used by one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[str, Address] = {}

    def prepare(self, transactional_id: str) -> PreparedTransaction | None:
        """Keep the open transaction of a producer, without a timeout; None if none is open.

        Call it when all messages of the transaction are acknowledged. The producer is fenced by it and must
        not be used again. `NotSupported` if the cluster has no two-phase commit or does not allow it.
        """
        request = keep_request(transactional_id)
        response = self._until_answered(transactional_id, INIT_TWO_PHASE, request)
        if response.error_code:
            raise keep_refusal(response.error_code, transactional_id)
        return prepared_in(response, transactional_id)

    def check(self, transactional_id: str) -> None:
        """`NotSupported` if a transaction of this id could not be prepared. No transaction may be open."""
        self.prepare(transactional_id)

    def end(self, prepared: PreparedTransaction, *, committed: bool) -> None:
        """Commit or abort, also again. `OtherOutcome` if the transaction has another outcome."""
        request = end_request(prepared, committed)
        response = self._until_answered(prepared.transactional_id, END_TXN, request)
        if end_verdict(response.error_code) is not Verdict.DONE:
            raise end_refusal(response.error_code, prepared, committed)

    def abort(self, transactional_id: str) -> None:
        """Abort what is open under this id, prepared or not, and fence its producer."""
        response = self._until_answered(transactional_id, INIT_PRODUCER_ID, abort_request(transactional_id))
        code = response.error_code
        if code:
            raise TwoPhaseError(
                f"the transaction of {transactional_id!r} is not aborted: {error_name(code)}", code
            )

    def open_ids(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix whose transaction is open, at all brokers that answer.

        A coordinator that is moving lists nothing: an external coordinator should know its ids itself.
        """
        request = ListTransactionsRequest(state_filters=list(_OPEN))
        found: set[str] = set()
        self._cluster.refresh([])
        for node in list(self._cluster.view.nodes.values()):
            call = partial(self._cluster.call, (node.host, node.port), LIST_TRANSACTIONS, request)
            response = self._retried(call)
            if response.error_code:
                about = f"{node.host}:{node.port} does not list its transactions"
                raise TwoPhaseError(f"{about}: {error_name(response.error_code)}", response.error_code)
            found |= {each.transactional_id for each in response.transaction_states}
        return sorted(each for each in found if each.startswith(prefix))

    def _until_answered(self, transactional_id: str, api: Api[Any, Any], request: Struct) -> Any:
        """The response of the coordinator, whose error code is none that asks for a retry."""

        def call() -> Any:
            known = self._coordinators.get(transactional_id) or self._find(transactional_id)
            if isinstance(known, int):
                return api.response(error_code=known)
            try:
                response = self._cluster.call(known, api, request)
            except PeerGone:
                self._coordinators.pop(transactional_id, None)
                raise
            if reaction_to(response.error_code) is not Reaction.NONE:
                self._coordinators.pop(transactional_id, None)
            return response

        try:
            return self._retried(call)
        except UnsupportedVersion as e:
            raise keep_refusal(ErrorCode.UNSUPPORTED_VERSION, transactional_id) from e

    def _find(self, transactional_id: str) -> Address | int:
        """The coordinator, or the error code of the request for it."""
        request = coordinator_request(transactional_id, TRANSACTION)
        found = coordinator_in(self._cluster.call(self._cluster.view.next_node(), FIND_COORDINATOR, request))
        if found.error_code:
            return found.error_code
        self._coordinators[transactional_id] = found.host, found.port
        return found.host, found.port

    def _retried(self, call: Callable[[], Any]) -> Any:
        attempts = Attempts(self._cluster.endpoint.total_timeout_s)
        while True:
            try:
                response = call()
            except PeerRejected:
                raise
            except PeerGone as e:
                attempts.failed(e)
                continue
            code = response.error_code
            if reaction_to(code) in (Reaction.NONE, Reaction.FAIL):
                return response
            attempts.failed(TwoPhaseError(f"the coordinator answers {error_name(code)} only", code))
