"""Subscriptions to metrics of clients: patterns that the event loop can afford (KIP-714)."""

from __future__ import annotations

import pytest

from penstock.model.config import check_client_metrics, compile_client_pattern
from penstock.model.errors import InvalidConfig


@pytest.mark.parametrize(
    "match",
    [
        "client_software_name=apache-kafka-java",
        r"client_id=app-[0-9]+, client_source_address=10\.(0|1)\.[0-9]+\.[0-9]+",
        "client_software_version=(3|4)\\..*",
    ],
)
def test_patterns_of_operators_are_accepted(match: str) -> None:
    check_client_metrics({"match": match})


@pytest.mark.parametrize(
    "match",
    [
        pytest.param("client_id=(", id="no expression"),
        pytest.param("client_id=(?=x)", id="would never match"),
        pytest.param("client_id=" + "(.{0,900}" * 9 + ")" * 9, id="takes a megabyte"),
        pytest.param("somebody=a", id="no attribute"),
        pytest.param("client_id", id="no pattern"),
    ],
)
def test_patterns_that_a_broker_cannot_apply_are_refused(match: str) -> None:
    with pytest.raises(InvalidConfig, match="Illegal client matching pattern"):
        check_client_metrics({"match": match})


def test_all_patterns_together_have_a_limit() -> None:
    """Without case, each class of all characters took 5 ms to compile: 10,000 of them fit into a value."""
    classes = "(?i)" + "[\\x{0}-\\x{10ffff}]" * 100
    with pytest.raises(InvalidConfig, match="more than 512 characters"):
        check_client_metrics({"match": f"client_id={classes}"})
    with pytest.raises(InvalidConfig, match="more than 512 characters"):
        check_client_metrics({"match": f"client_id={'a' * 300},client_software_name={'b' * 300}"})
    # Also one that an earlier version has accepted.
    assert compile_client_pattern(classes) is None
