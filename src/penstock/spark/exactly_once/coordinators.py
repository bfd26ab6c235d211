"""What a sink asks of transaction coordinators: new epochs, and the ends of transactions.

EndTxn comes from the driver, for transactions that tasks began on other connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.model.errors import ApiError, ErrorCode, error_name
from penstock.reading.connection import Cluster
from penstock.spark.errors import ReadingError
from penstock.spark.exactly_once.decisions import Prepared
from penstock.spark.exactly_once.producing import Producer
from penstock.twophase import coordinators
from penstock.twophase.outcomes import NO_TIMEOUT_MS, PreparedTransaction, Verdict, end_verdict
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest

__all__ = ["TRANSACTION_TIMEOUT_MS", "Coordinators", "DecisionBroken"]

#: of transactions that are not two-phase: the driver's, which last milliseconds
TRANSACTION_TIMEOUT_MS: Final = 20_000
_NO_PRODUCER: Final = -1


class DecisionBroken(ReadingError):
    """A transaction of a decided batch was not committed by its coordinator."""


class Coordinators:
    """The transaction coordinators of a cluster; each request is repeated until its time is up."""

    def __init__(self, cluster: Cluster) -> None:
        self._coordinators = coordinators.Coordinators(cluster)

    def begin(self, transactional_id: str, *, two_phase: bool) -> Producer:
        """A new epoch. Earlier producers of the id are fenced, and their open transaction is aborted."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=NO_TIMEOUT_MS if two_phase else TRANSACTION_TIMEOUT_MS,
            producer_id=_NO_PRODUCER,
            producer_epoch=_NO_PRODUCER,
            enable_2pc=two_phase,
        )
        answer = self._coordinators.ask(transactional_id, INIT_PRODUCER_ID, request)
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise ApiError(code, f"InitProducerId for {transactional_id}: {code.name}")
        return Producer(transactional_id, answer.producer_id, answer.producer_epoch)

    def commit(self, transactions: Sequence[Prepared], *, is_resumed: bool) -> None:
        """Commit all. Ending a transaction twice in the same way is harmless.

        A resumed decision may name transactional ids that have ended, and have expired since.
        """
        gone = {ErrorCode.INVALID_PRODUCER_ID_MAPPING} if is_resumed else set()
        rows = {each.transactional_id: each.rows for each in transactions}
        for refused, code in self._end(transactions, committed=True):
            if code not in gone:
                raise DecisionBroken(
                    f"transaction {refused.transactional_id} with {rows[refused.transactional_id]} rows is "
                    f"decided, and its coordinator answers {error_name(code)}: something else has ended it"
                )

    def abort(self, transactions: Sequence[Prepared]) -> None:
        """Abort what is still open. One that has ended, or whose producer was fenced, is no error."""
        for refused, code in self._end(transactions, committed=False):
            if end_verdict(code) is not Verdict.OTHER_OUTCOME:
                what = f"aborting {refused.transactional_id}: {error_name(code)}"
                raise ApiError(ErrorCode(code), what)

    def fence(self, transactional_ids: Iterable[str]) -> None:
        """Abort the open transactions of these ids, whatever their producers do later.

        The second abort leaves them in a state that is not listed again.
        """
        fenced = [self.begin(each, two_phase=False) for each in transactional_ids]
        self.abort([Prepared(*producer, rows=0) for producer in fenced])

    def listed(self, pattern: str, states: Sequence[str] = ()) -> list[str]:
        """The transactional ids that match `pattern`, of all coordinators."""
        return self._coordinators.listed(pattern, states)

    def _end(
        self, transactions: Iterable[Prepared], *, committed: bool
    ) -> list[tuple[PreparedTransaction, int]]:
        return self._coordinators.end((each.transaction for each in transactions), committed=committed)
