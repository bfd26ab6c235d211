"""Prepared transactions while their coordinator is killed (KIP-939): each gets the outcome decided for it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lab.penstock import penstock
from lab.server import Server
from penstock.model.addresses import parse_bootstrap
from penstock.reading.connection import Cluster, Endpoint
from penstock.twophase.outcomes import OtherOutcome, PreparedTransaction
from penstock.twophase.prepared import PreparedTransactions
from tests.interop.isolation import read
from tests.interop.load import wait_until
from tests.twophase.writing import write

TOPIC = "loaded"
SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.state.log.num.partitions": "2",
    "penstock.flush": "group",
}


def kill_and_start(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGKILL)
    assert server.process.wait(60) == -signal.SIGKILL
    server.start()


@pytest.mark.process
def test_prepared_transactions_survive_a_killed_coordinator(tmp_path: Path) -> None:
    server = penstock(tmp_path, SETTINGS)
    server.start()
    try:
        endpoint = Endpoint(tuple(parse_bootstrap(server.bootstrap)), total_timeout_s=120.0)
        cluster = Cluster(endpoint)
        transactions = PreparedTransactions(cluster)
        stored = {}
        for outcome in ("committed", "aborted", "decided"):
            producer = write(server.bootstrap, f"load-{outcome}", TOPIC, f"{outcome} 1", f"{outcome} 2")
            prepared = transactions.prepare(f"load-{outcome}")
            assert prepared is not None
            stored[outcome] = str(prepared)
            del producer
        # The decision is acknowledged, and the kill may come before its markers.
        transactions.end(PreparedTransaction.parse(stored["decided"]), committed=True)
        kill_and_start(server)
        still_open = ["load-aborted", "load-committed"]
        wait_until(lambda: transactions.open_ids("load-") == still_open, "the prepared transactions")
        kept = transactions.prepare("load-committed")  # a new incarnation of the external coordinator
        assert kept is not None
        with pytest.raises(OtherOutcome):
            transactions.end(PreparedTransaction.parse(stored["committed"]), committed=True)
        kill_and_start(server)
        transactions.end(kept, committed=True)
        transactions.end(PreparedTransaction.parse(stored["aborted"]), committed=False)
        kill_and_start(server)
        for text, committed in ((str(kept), True), (stored["aborted"], False), (stored["decided"], True)):
            transactions.end(PreparedTransaction.parse(text), committed=committed)
        wanted = {f"{outcome} {n}".encode() for outcome in ("committed", "decided") for n in (1, 2)}
        wait_until(lambda: len(read(server.bootstrap, TOPIC)) == len(wanted), "committed messages")
        assert set(read(server.bootstrap, TOPIC)) == wanted
        cluster.close()
    finally:
        server.stop()
