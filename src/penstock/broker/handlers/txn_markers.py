"""WriteTxnMarkers."""

from __future__ import annotations

from penstock.broker.base.context import Context
from penstock.broker.replica.txn_markers import MarkerWriter
from penstock.net.deferred import Deferred
from penstock.wire.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

__all__ = ["TxnMarkerHandlers"]


class TxnMarkerHandlers:
    """Answers the WriteTxnMarkers requests of transaction coordinators and administrators."""

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def write_txn_markers(
        self, context: Context, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
        return self._writer.write(request)
