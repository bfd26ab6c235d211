"""Abilities that are off below their level."""

from __future__ import annotations

import pytest

from penstock.metadata.levels import (
    ACCESS,
    QUOTAS,
    TRANSACTIONS,
    TWO_PHASE_COMMIT,
    Ability,
    check_topic,
    refused,
)
from penstock.model.errors import ApiError, ErrorCode


@pytest.mark.parametrize("ability", [ACCESS, QUOTAS, TRANSACTIONS, TWO_PHASE_COMMIT])
def test_an_ability_is_off_below_its_level(ability: Ability) -> None:
    error = refused({"penstock.version": 1, "metadata.version": 30}, ability)
    assert error is not None and error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "need level 2 of penstock.version, and this cluster works at 1: once all brokers" in str(error)
    assert refused({}, ability) is not None


@pytest.mark.parametrize(
    "levels", [{"penstock.version": 2}, {"penstock.version": 1, "transaction.version": 2}]
)
def test_an_ability_is_on_at_one_of_its_levels(levels: dict[str, int]) -> None:
    """Clusters with transactions were created by brokers that knew all of these records."""
    for ability in (ACCESS, QUOTAS, TRANSACTIONS):
        assert refused(levels, ability) is None


def test_a_topic_gets_no_tiered_storage_below_its_level_and_keeps_it() -> None:
    tiered = {"remote.storage.enable": "true", "local.retention.ms": "1000"}
    with pytest.raises(ApiError, match="topics with tiered storage need level 2"):
        check_topic({"penstock.version": 1, "transaction.version": 2}, tiered)
    check_topic({"penstock.version": 2}, tiered)
    check_topic({"penstock.version": 1}, {"retention.ms": "1"})
    check_topic({"penstock.version": 1}, tiered, {"remote.storage.enable": "True"})
