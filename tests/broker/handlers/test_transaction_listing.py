"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from tests.broker.handlers.transaction_requests import init
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
)


class TestListing:
    def test_filters(self, client: RawClient, topic: Topic) -> None:
        _, txn = init(client)
        txn.add(topic.name)

        def listed(version: int = 2, **fields: object) -> tuple[str, list[str], list[str]]:
            request = ListTransactionsRequest()
            for name, value in fields.items():
                setattr(request, name, value)
            response = client.call(LIST_TRANSACTIONS, version, request)
            names = [found.transactional_id for found in response.transaction_states]
            return ErrorCode(response.error_code).name, names, response.unknown_state_filters

        own = [txn.producer_id]
        assert listed(0, producer_id_filters=own)[1] == [txn.id]
        assert listed(state_filters=["Ongoing"], producer_id_filters=own)[1] == [txn.id]
        assert listed(state_filters=["Empty"], producer_id_filters=own)[1] == []
        assert listed(state_filters=["Nonsense"]) == ("NONE", [], ["Nonsense"])
        assert listed(state_filters=["Dead", "PrepareEpochFence"]) == ("NONE", [], [])
        assert listed(duration_filter=600_000, producer_id_filters=own)[1] == []
        assert listed(transactional_id_pattern=txn.id[:-1] + ".")[1] == [txn.id]
        assert listed(transactional_id_pattern=txn.id[:-1])[1] == []
        assert listed(transactional_id_pattern="(")[0] == "INVALID_REGULAR_EXPRESSION"

    def test_a_description_has_all_fields(self, client: RawClient, topic: Topic) -> None:
        _, txn = init(client)
        txn.add(topic.name)
        found = txn.describe()
        assert (found.producer_id, found.producer_epoch) == (txn.producer_id, txn.epoch)
        assert found.transaction_timeout_ms == 60_000
        assert [(t.topic, t.partitions) for t in found.topics] == [(topic.name, [0])]
        assert found.transaction_start_time_ms > 0
