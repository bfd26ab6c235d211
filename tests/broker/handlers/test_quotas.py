"""The admin APIs of client quotas (KIP-546, KIP-612)."""

from __future__ import annotations

import itertools

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterationResult,
    AlterClientQuotasRequest,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)
from tests.broker.raw import RawClient

Named = list[tuple[str, str | None]]
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
_numbers = itertools.count()


@pytest.fixture
def user() -> str:
    """A user that no other test has."""
    return f"quota-user-{next(_numbers)}"


def entry(entity: Named, **values: float | None) -> AlteredEntry:
    """An alteration; None removes a key."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    return AlteredEntry(entity=[EntityData(entity_type=k, entity_name=n) for k, n in entity], ops=ops)


def alter(
    client: RawClient, *entries: AlteredEntry, validate_only: bool = False, version: int = 1
) -> list[AlterationResult]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return client.call(ALTER_CLIENT_QUOTAS, version, request).entries


def describe(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> DescribeClientQuotasResponse:
    wanted = [ComponentData(entity_type=k, match_type=m, match=n) for k, m, n in components]
    return client.call(
        DESCRIBE_CLIENT_QUOTAS, version, DescribeClientQuotasRequest(components=wanted, strict=strict)
    )


def found(
    response: DescribeClientQuotasResponse,
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    assert response.error_code == ErrorCode.NONE and response.entries is not None
    return {
        tuple(sorted(((e.entity_type, e.entity_name) for e in each.entity), key=lambda pair: pair[0])): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_set_changed_and_removed(client: RawClient, user: str, version: int) -> None:
    named: Named = [("user", user)]
    (result,) = alter(client, entry(named, producer_byte_rate=1e9, consumer_byte_rate=2e9), version=version)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    exact = ("user", EXACT, user)
    assert found(describe(client, exact, version=version)) == {
        (("user", user),): {"producer_byte_rate": 1e9, "consumer_byte_rate": 2e9}
    }
    alter(client, entry(named, producer_byte_rate=3e9, consumer_byte_rate=None), version=version)
    assert found(describe(client, exact, version=version)) == {(("user", user),): {"producer_byte_rate": 3e9}}
    alter(client, entry(named, producer_byte_rate=None), version=version)
    assert found(describe(client, exact, version=version)) == {}


def test_filters_match_exactly_by_default_and_by_type(client: RawClient, user: str) -> None:
    both: Named = [("user", user), ("client-id", "c")]
    default: Named = [("user", user), ("client-id", None)]
    alone: Named = [("user", user)]
    try:
        results = alter(client, *(entry(e, request_percentage=900.0) for e in (both, default, alone)))
        assert [r.error_code for r in results] == [0, 0, 0]
        exact = ("user", EXACT, user)
        assert len(found(describe(client, exact))) == 3
        assert list(found(describe(client, exact, strict=True))) == [(("user", user),)]
        assert list(found(describe(client, exact, ("client-id", DEFAULT, None)))) == [
            (("client-id", None), ("user", user))
        ]
        assert len(found(describe(client, exact, ("client-id", SPECIFIED, None)))) == 2
        assert len(found(describe(client))) >= 3
        assert found(describe(client, strict=True)) == {}
    finally:
        alter(client, *(entry(e, request_percentage=None) for e in (both, default, alone)))


def test_validate_only_changes_nothing(client: RawClient, user: str) -> None:
    (result,) = alter(client, entry([("user", user)], producer_byte_rate=1.0), validate_only=True)
    assert result.error_code == ErrorCode.NONE
    (refused,) = alter(client, entry([("user", user)], producer_byte_rate=-1.0), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert found(describe(client, ("user", EXACT, user))) == {}


@pytest.mark.parametrize(
    "altered",
    [
        entry([], producer_byte_rate=1.0),
        entry([("user", "")], producer_byte_rate=1.0),
        entry([("group", "g")], producer_byte_rate=1.0),
        entry([("user", "u"), ("ip", "10.0.0.1")], producer_byte_rate=1.0),
        entry([("user", "u")], connection_creation_rate=1.0),
        entry([("user", "u")], no_such_key=1.0),
        entry([("ip", "10.0.0.1")], connection_creation_rate=1.5),
        entry([("ip", "not an address")], connection_creation_rate=1.0),
    ],
)
def test_invalid_alterations_are_refused(client: RawClient, altered: AlteredEntry) -> None:
    (result,) = alter(client, altered)

    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message


def test_one_refused_key_refuses_the_entity(client: RawClient, user: str) -> None:
    results = alter(
        client,
        entry([("user", user)], producer_byte_rate=1e9, bad=1.0),
        entry([("ip", "10.9.9.9")], connection_creation_rate=1e6),
    )
    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert found(describe(client, ("user", EXACT, user))) == {}
    assert found(describe(client, ("ip", EXACT, "10.9.9.9")))
    alter(client, entry([("ip", "10.9.9.9")], connection_creation_rate=None))


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", SPECIFIED, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("topic", SPECIFIED, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_filters_are_refused(
    client: RawClient, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    response = describe(client, *components)

    assert (response.error_code, response.entries) == (code, None)


def test_an_entity_of_many_parts_is_refused_as_one_with_a_part_too_many(client: RawClient) -> None:
    """Each such entity has a result of its own, and none of them is looked at beyond its fourth part."""
    many: Named = [("user", f"u{number}") for number in range(3000)]
    other: Named = [*many[:-1], ("user", "another")]
    first, second = alter(client, entry(many, producer_byte_rate=1), entry(other, producer_byte_rate=1))
    for result, named in ((first, many), (second, other)):
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "duplicate entity entry user" in (result.error_message or "")
        assert [(e.entity_type, e.entity_name) for e in result.entity] == named
