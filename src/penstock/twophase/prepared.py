"""Prepare and decide transactions from the side of an external coordinator."""

from __future__ import annotations

from typing import Any, Final

from penstock.model.errors import ApiError, ErrorCode, UnsupportedVersion, error_name
from penstock.reading.connection import Cluster
from penstock.twophase.coordinators import Coordinators
from penstock.twophase.outcomes import (
    INIT_TWO_PHASE,
    PreparedTransaction,
    TwoPhaseError,
    abort_request,
    end_refusal,
    keep_refusal,
    keep_request,
    prepared_in,
)
from penstock.wire.api import Api
from penstock.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

__all__ = ["PreparedTransactions"]

#: the states of a transaction without an outcome
_OPEN: Final = ("Ongoing",)


class PreparedTransactions:
    """The transactions of an external coordinator in one cluster. Used by one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._coordinators = Coordinators(cluster)

    def prepare(self, transactional_id: str) -> PreparedTransaction | None:
        """Keep the open transaction of a producer, without a timeout; None if none is open.

        Call it when all messages of the transaction are acknowledged. The producer is fenced by it and must
        not be used again. `NotSupported` if the cluster has no two-phase commit or does not allow it.
        """
        request = keep_request(transactional_id)
        try:
            response = self._init(transactional_id, INIT_TWO_PHASE, request)
        except UnsupportedVersion as e:
            raise keep_refusal(ErrorCode.UNSUPPORTED_VERSION, transactional_id) from e
        if response.error_code:
            raise keep_refusal(response.error_code, transactional_id)
        return prepared_in(response, transactional_id)

    def check(self, transactional_id: str) -> None:
        """`NotSupported` if a transaction of this id could not be prepared. No transaction may be open."""
        self.prepare(transactional_id)

    def end(self, prepared: PreparedTransaction, *, committed: bool) -> None:
        """Commit or abort, also again. `OtherOutcome` if the transaction has another outcome."""
        try:
            refused = self._coordinators.end([prepared], committed=committed)
        except ApiError as e:
            raise end_refusal(e.code, prepared, committed) from e
        for _, code in refused:
            raise end_refusal(code, prepared, committed)

    def abort(self, transactional_id: str) -> None:
        """Abort what is open under this id, prepared or not, and fence its producer."""
        code = self._init(transactional_id, INIT_PRODUCER_ID, abort_request(transactional_id)).error_code
        if code:
            raise TwoPhaseError(
                f"the transaction of {transactional_id!r} is not aborted: {error_name(code)}", code
            )

    def open_ids(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix whose transaction is open, at all brokers that answer.

        A coordinator that is moving lists nothing: an external coordinator should know its ids itself.
        """
        try:
            return [each for each in self._coordinators.listed(states=_OPEN) if each.startswith(prefix)]
        except ApiError as e:
            raise TwoPhaseError(f"a broker does not list its transactions: {e}", e.code) from e

    def _init(
        self,
        transactional_id: str,
        api: Api[InitProducerIdRequest, Any],
        request: InitProducerIdRequest,
    ) -> InitProducerIdResponse:
        try:
            response: InitProducerIdResponse = self._coordinators.ask(transactional_id, api, request)
        except ApiError as e:
            raise TwoPhaseError(f"the coordinator answers {error_name(e.code)} only", e.code) from e
        return response
