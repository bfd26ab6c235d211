"""Precedence among quotas, and the checks of entities and values (KIP-546)."""

from __future__ import annotations

import pytest

from penstock.model.errors import ApiError
from penstock.quotas.entities import (
    CONNECTION_CREATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    Found,
    check_entity,
    check_value,
    find_quota,
)

#: Kafka's eight levels, the most specific first, and the user and client id that share the quota
LEVELS: list[tuple[Entity, tuple[str, str]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_level_decides(first: int) -> None:
    quotas = {entity: {PRODUCER_BYTE_RATE: float(n)} for n, (entity, _) in enumerate(LEVELS) if n >= first}

    assert find_quota(quotas, PRODUCER_BYTE_RATE, "u", "c") == Found(float(first), *LEVELS[first][1])


def test_each_key_is_resolved_alone() -> None:
    quotas: dict[Entity, dict[str, float]] = {
        (("user", "u"),): {REQUEST_PERCENTAGE: 10.0},
        (("client-id", "c"),): {PRODUCER_BYTE_RATE: 5.0},
    }

    assert find_quota(quotas, REQUEST_PERCENTAGE, "u", "c") == Found(10.0, "u", "")
    assert find_quota(quotas, PRODUCER_BYTE_RATE, "u", "c") == Found(5.0, "", "c")


def test_a_client_without_an_id_has_no_quota_of_client_ids() -> None:
    quotas: dict[Entity, dict[str, float]] = {(("client-id", None),): {PRODUCER_BYTE_RATE: 5.0}}

    assert find_quota(quotas, PRODUCER_BYTE_RATE, "u", "") is None


def test_other_users_are_not_limited() -> None:
    quotas: dict[Entity, dict[str, float]] = {(("user", "u"),): {PRODUCER_BYTE_RATE: 5.0}}

    assert find_quota(quotas, PRODUCER_BYTE_RATE, "v", "c") is None


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ([], "empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("topic", "t")], "Unhandled client quota entity type"),
        ([("user", "a"), ("user", "b")], "duplicate entity entry user"),
        ([("ip", "10.0.0.1"), ("user", "a")], "should not be combined"),
        ([("ip", "example.org")], "not a valid IP"),
    ],
)
def test_malformed_entities_are_refused(entity: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(ApiError, match=message):
        check_entity(entity)


def test_an_entity_is_put_in_order() -> None:
    assert check_entity([("user", None), ("client-id", "c")]) == (("client-id", "c"), ("user", None))
    assert check_entity([("ip", "::1")]) == (("ip", "::1"),)


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("user", "bytes", 1.0, "Invalid configuration key"),
        ("user", CONNECTION_CREATION_RATE, 1.0, "Invalid configuration key"),
        ("ip", PRODUCER_BYTE_RATE, 1.0, "Invalid configuration key"),
        ("user", PRODUCER_BYTE_RATE, 0.0, "must be greater than 0"),
        ("user", PRODUCER_BYTE_RATE, float("nan"), "must be greater than 0"),
        ("user", PRODUCER_BYTE_RATE, 1.5, "cannot be a fractional value"),
        ("ip", CONNECTION_CREATION_RATE, 2.0**31, "too large for an INT"),
        ("user", PRODUCER_BYTE_RATE, 2.0**64, "too large for a LONG"),
    ],
)
def test_invalid_values_are_refused(kind: str, key: str, value: float, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        check_value(((kind, "x"),), key, value)


def test_a_percentage_may_be_a_fraction() -> None:
    check_value((("user", "u"),), REQUEST_PERCENTAGE, 0.5)
