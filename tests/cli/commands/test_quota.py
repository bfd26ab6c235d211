"""`penstock quota`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from penstock.cli.failure import FAILED, MISUSED
from penstock.testing import broker
from tests.cli.running import run_here

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker() as running:
        yield running.bootstrap


@pytest.fixture
def penstock(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = run_here("quota", *arguments, "--bootstrap", bootstrap)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_quotas_are_set_listed_and_removed(penstock: Run) -> None:
    code, out, _ = penstock("set", "--user", "alice", "producer-byte-rate=1e9", "request_percentage=50.5")
    assert (code, out) == (0, "user alice: producer_byte_rate 1e+09\nuser alice: request_percentage 50.5\n")
    assert penstock("set", "--user", "default", "--client-id", "app", "consumer_byte_rate=1e9")[0] == 0
    assert penstock("set", "--ip", "10.0.0.1", "connection_creation_rate=5")[0] == 0
    assert penstock("set", "--user", "bob", "producer_byte_rate=1", "--dry-run")[0] == 0
    rows = json.loads(penstock("list", "--json")[1])
    assert {tuple(row.values()) for row in rows} == {
        ("alice", "", "", "producer_byte_rate", 1_000_000_000),
        ("alice", "", "", "request_percentage", 50.5),
        ("<default>", "app", "", "consumer_byte_rate", 1_000_000_000),
        ("", "", "10.0.0.1", "connection_creation_rate", 5),
    }
    assert len(json.loads(penstock("list", "--user", "default", "--json")[1])) == 1
    assert penstock("remove", "--user", "alice", "producer_byte_rate", "request-percentage")[0] == 0
    assert penstock("list", "--user", "alice") == (0, "", "there are no such quotas\n")


def test_mistakes_are_explained(penstock: Run) -> None:
    code, _, error = penstock("set", "--user", "alice", "producer_byte_rate=-1")
    assert code == FAILED
    assert "must be greater than 0" in error
    assert penstock("set", "producer_byte_rate=1")[0] == MISUSED
    assert penstock("set", "--user", "alice", "producer_byte_rate")[0] == MISUSED
    assert penstock("set", "--user", "alice", "--ip", "10.0.0.1", "producer_byte_rate=1")[0] == MISUSED
