"""`penstock sql` on a live broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.cli.commands import sql as command
from penstock.testing import BrokerThread, broker
from tests.cli.running import Command

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'penstock-mq[frames]'")


@pytest.fixture(scope="module")
def filled() -> Iterator[BrokerThread]:
    """A topic `orders` of six messages; the value of the first is not UTF-8."""
    with broker() as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 2})
        for number in range(6):
            value = b'{"country": "NL"}' if number else b"\xff"
            producer.produce("orders", value, key=f"k{number % 2}", headers={"h": b"x"})
        assert producer.flush(60) == 0
        yield running


def test_a_table(penstock: Command, filled: BrokerThread) -> None:
    query = "select key, count(*) from orders where timestamp > now() - interval 1 hour group by 1 order by 1"
    done = penstock("sql", query, "--bootstrap", filled.bootstrap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["key", "count", "star()", "k0", "3", "k1", "3"]


def test_json_lines(penstock: Command, filled: BrokerThread) -> None:
    query = 'select value, headers, true as yes, null as nothing from orders where "offset" = 0'
    done = penstock("sql", query, "--json", "--bootstrap", filled.bootstrap)
    headers = [{"key": "h", "value": "eA=="}]
    assert json.loads(done.stdout) == {"value": "\ufffd", "headers": headers, "yes": True, "nothing": None}
    exact = penstock("sql", query, "--json", "--binary", "--bootstrap", filled.bootstrap)
    assert json.loads(exact.stdout)["value"] == "/w=="


def test_a_table_of_many_rows_is_cut(
    penstock: Command, filled: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_SHOWN_MAX", 2)
    done = penstock("sql", "select key, null, true from orders", "--bootstrap", filled.bootstrap)
    assert len(done.stdout.splitlines()) == 3
    assert "only the first 2 rows are shown: add LIMIT, or use --json" in done.stderr


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select * from ordrs", "penstock: Catalog Error: Table with name ordrs does not exist!"),
        ("selec 1", "penstock: Parser Error"),
        ("select (value::json)->>'country' from orders", "penstock: Conversion Error: Malformed JSON"),
    ],
)
def test_an_error_is_one_line(penstock: Command, filled: BrokerThread, query: str, reason: str) -> None:
    done = penstock("sql", query, "--bootstrap", filled.bootstrap)
    assert done.returncode == 1
    assert done.stderr.startswith(reason)
    assert done.stderr.count("\n") == 1


def test_a_cluster_that_does_not_answer(penstock: Command) -> None:
    done = penstock("sql", "select 1", "--bootstrap", "127.0.0.1:1", "--timeout", "0.5")
    assert done.returncode == 1
    assert "127.0.0.1:1: cannot connect" in done.stderr
