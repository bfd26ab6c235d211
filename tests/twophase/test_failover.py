"""Prepared transactions in a cluster that loses coordinators, and whose `__transaction_state` moves."""

from __future__ import annotations

from penstock.model.addresses import parse_bootstrap
from penstock.reading.connection import Cluster, Endpoint
from penstock.testing import cluster
from penstock.twophase.prepared import PreparedTransactions
from tests.interop.isolation import read
from tests.twophase.writing import write

STATE = "__transaction_state"
CONFIG = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


def test_each_coordinator_keeps_and_ends_the_transactions_of_the_one_before() -> None:
    with cluster(brokers=3, config=CONFIG) as brokers:
        connections = Cluster(Endpoint(tuple(parse_bootstrap(brokers.bootstrap)), total_timeout_s=120.0))
        transactions = PreparedTransactions(connections)
        producers = [write(brokers.bootstrap, f"load-{n}", "loaded", f"{n} a", f"{n} b") for n in range(3)]
        prepared = [transactions.prepare(f"load-{n}") for n in range(3)]
        first, second, third = prepared
        assert first is not None and second is not None and third is not None
        del producers

        coordinator = brokers.wait_for_leader(STATE)
        brokers.wait_for_isr(STATE)
        brokers.wait_for_isr("loaded")
        brokers.kill(coordinator)
        # The markers of this one need a leader of the topic, which may have been on the same broker.
        transactions.end(first, committed=True)
        again = transactions.prepare("load-1")
        assert again is not None
        brokers.start(coordinator)
        brokers.wait_for_isr(STATE)

        other = brokers.wait_for_leader(STATE)
        brokers.kill(other)
        transactions.end(again, committed=True)
        transactions.end(first, committed=True)
        transactions.end(third, committed=False)
        brokers.start(other)
        brokers.wait_until(lambda: transactions.prepare("load-2") is None)
        brokers.wait_until(lambda: len(read(brokers.bootstrap, "loaded")) == 4)
        assert set(read(brokers.bootstrap, "loaded")) == {b"0 a", b"0 b", b"1 a", b"1 b"}
        connections.close()
