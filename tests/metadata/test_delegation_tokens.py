"""Decisions about delegation tokens (KIP-48, KIP-373), with the errors of Kafka's controller in its order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.metadata import delegation_tokens
from penstock.metadata.delegation_tokens import (
    HmacIndex,
    TokenPolicy,
    create_token,
    described_tokens,
    expire_token,
    refused_creation,
    removed_tokens,
    renew_token,
)
from penstock.metadata.image import ClusterImage
from penstock.metadata.snapshot import image_of_snapshot, snapshot
from penstock.model.errors import ErrorCode
from penstock.model.steps import at_once
from penstock.security.delegation_tokens import token_hmac
from penstock.security.principal import Principal
from penstock.wire.apis.create_delegation_token import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.apis.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from penstock.wire.apis.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.apis.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.metadata_records import FeatureLevelRecord
from penstock.wire.schema import Struct
from penstock.wire.security_records import DelegationTokenRecord, RemoveDelegationTokenRecord

ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
SECRET = b"secret"
POLICY = TokenPolicy(SECRET, max_lifetime_ms=10_000, renewal_ms=1000)
NOW = 5000
FOREVER = (1 << 63) - 1


@pytest.fixture
def image() -> ClusterImage:
    return image_at({"penstock.version": 2, "metadata.version": 30})


def image_at(levels: dict[str, int]) -> ClusterImage:
    image = ClusterImage()
    apply(image, [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()])
    return image


def apply(image: ClusterImage, records: Sequence[Struct]) -> None:
    for record in records:
        image.apply(record, image.offset + 1)


def create(
    image: ClusterImage,
    *,
    token_id: str = "id",
    owner: Principal | None = None,
    renewers: Sequence[Principal] = (),
    max_lifetime_ms: int = -1,
    by: Principal = ALICE,
    policy: TokenPolicy = POLICY,
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else owner.type,
        owner_principal_name=None if owner is None else owner.name,
        renewers=[CreatableRenewer(principal_type=t, principal_name=n) for t, n in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    records, response = create_token(image, request, by, policy, NOW, token_id)
    apply(image, records)
    return response


def renew(
    image: ClusterImage, hmac: bytes, by: Principal, period_ms: int = -1, now_ms: int = NOW
) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    records, response = at_once(renew_token(image, request, by, POLICY, HmacIndex(SECRET), now_ms))
    apply(image, records)
    return response.error_code, response.expiry_timestamp_ms


def expire(
    image: ClusterImage, hmac: bytes, by: Principal, period_ms: int = -1, now_ms: int = NOW
) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    records, response = at_once(expire_token(image, request, by, POLICY, HmacIndex(SECRET), now_ms))
    apply(image, records)
    return response.error_code, response.expiry_timestamp_ms


def test_a_token_has_the_times_of_the_configs_and_no_hmac_in_the_metadata(image: ClusterImage) -> None:
    made = create(image, renewers=[BOB])
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (5000, 6000, 15_000)
    assert (made.token_id, made.hmac) == ("id", token_hmac(SECRET, "id"))
    assert image.tokens["id"] == DelegationTokenRecord(
        owner="User:alice",
        requester="User:alice",
        renewers=["User:bob"],
        issue_timestamp=5000,
        max_timestamp=15_000,
        expiration_timestamp=6000,
        token_id="id",
    )


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms", "expiry_ms"),
    [(-1, 15_000, 6000), (0, 15_000, 6000), (20_000, 15_000, 6000), (2000, 7000, 6000), (500, 5500, 5500)],
)
def test_a_request_may_shorten_the_lifetime(
    image: ClusterImage, wanted_ms: int, max_ms: int, expiry_ms: int
) -> None:
    made = create(image, max_lifetime_ms=wanted_ms)
    assert (made.max_timestamp_ms, made.expiry_timestamp_ms) == (max_ms, expiry_ms)


def test_times_do_not_exceed_64_bits(image: ClusterImage) -> None:
    made = create(image, policy=TokenPolicy(SECRET, FOREVER, FOREVER))
    assert (made.max_timestamp_ms, made.expiry_timestamp_ms) == (FOREVER, FOREVER)


def test_errors_of_a_creation_come_in_the_order_of_kafka() -> None:
    new, old = image_at({"penstock.version": 2, "metadata.version": 30}), image_at({"metadata.version": 30})
    low = image_at({"penstock.version": 2, "metadata.version": 13})
    disabled = POLICY._replace(secret=b"")
    group = Principal("Group", "g")
    refused = ErrorCode.INVALID_PRINCIPAL_TYPE
    assert create(new, renewers=[group], policy=disabled).error_code == refused
    assert create(new, owner=group).error_code == refused
    assert create(old, policy=disabled).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(old).error_code == create(low).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert create(new, renewers=[BOB] * 1001).error_code == ErrorCode.INVALID_REQUEST
    assert create(new, owner=Principal("User", "x" * 70_000)).error_code == ErrorCode.INVALID_REQUEST
    assert not new.tokens and not old.tokens


def test_an_owner_with_too_many_tokens_gets_no_more(
    image: ClusterImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user without rights must not use up the tokens of the cluster."""
    monkeypatch.setattr(delegation_tokens, "_TOKENS_OF_OWNER_MAX", 2)
    codes = [create(image, token_id=f"id-{number}").error_code for number in range(3)]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert create(image, token_id="of-alice", owner=ALICE, by=BOB).error_code == ErrorCode.POLICY_VIOLATION
    assert create(image, token_id="of-bob", by=BOB).error_code == ErrorCode.NONE
    assert expire(image, token_hmac(SECRET, "id-0"), ALICE)[0] == ErrorCode.NONE
    assert create(image, token_id="again").error_code == ErrorCode.NONE


def test_an_owner_with_long_lists_of_renewers_gets_no_more_tokens(
    image: ClusterImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation_tokens, "_CHARACTERS_OF_OWNER_MAX", 30)
    assert create(image, token_id="1", renewers=[BOB, EVE]).error_code == ErrorCode.NONE
    assert create(image, token_id="2").error_code == ErrorCode.POLICY_VIOLATION
    assert create(image, token_id="3", by=BOB).error_code == ErrorCode.NONE


def test_a_broker_that_refuses_names_owner_and_requester() -> None:
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    refused = refused_creation(request, ALICE, code)
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    assert (refused.error_code, refused.issue_timestamp_ms) == (code, -1)


def test_the_owner_and_the_renewers_renew_up_to_the_last_time(image: ClusterImage) -> None:
    hmac = create(image, owner=ALICE, renewers=[BOB], by=EVE).hmac
    assert renew(image, hmac, BOB, now_ms=5500) == (0, 6500)
    assert renew(image, hmac, ALICE, period_ms=200, now_ms=6000) == (0, 6200)
    assert renew(image, hmac, ALICE, period_ms=5000, now_ms=6000) == (0, 7000)
    # The requester of another owner's token has no part in it.
    assert renew(image, hmac, EVE) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert renew(image, b"other", ALICE) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert renew(image, hmac, EVE, now_ms=7001) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert image.tokens["id"].expiration_timestamp == 7000


def test_a_renewal_ends_at_the_last_time(image: ClusterImage) -> None:
    hmac = create(image, max_lifetime_ms=1500).hmac
    assert renew(image, hmac, ALICE, now_ms=6000) == (0, 6500)


def test_a_negative_period_removes_a_token_also_an_expired_one(image: ClusterImage) -> None:
    hmac = create(image, renewers=[BOB]).hmac
    assert expire(image, hmac, EVE) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert expire(image, hmac, BOB, period_ms=100) == (0, 5100)
    assert expire(image, hmac, BOB, period_ms=100, now_ms=5101) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert expire(image, hmac, BOB, now_ms=5101) == (0, 5101)
    assert not image.tokens
    assert expire(image, hmac, BOB) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_the_expiry_can_be_moved_to_the_last_time(image: ClusterImage) -> None:
    hmac = create(image).hmac
    assert expire(image, hmac, ALICE, period_ms=FOREVER) == (0, 15_000)


def test_only_expired_tokens_are_removed_some_at_a_time(image: ClusterImage) -> None:
    for number in range(1500):
        create(image, token_id=f"old-{number}")
    create(image, token_id="new", max_lifetime_ms=9000)
    renew(image, token_hmac(SECRET, "new"), ALICE, now_ms=5800)
    assert at_once(removed_tokens(image, 6000)) == ([], 0)
    counts = []
    while True:
        records, count = at_once(removed_tokens(image, 6001))
        if not count:
            break
        assert all(isinstance(each, RemoveDelegationTokenRecord) for each in records)
        apply(image, records)
        counts.append(count)
    assert counts == [1000, 500]
    assert list(image.tokens) == ["new"]


def described(
    image: ClusterImage, by: Principal, owners: Sequence[Principal] | None = None, seen: str = ""
) -> list[str]:
    request = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else [DescribeDelegationTokenOwner(principal_type=t, principal_name=n) for t, n in owners]
    )
    found = at_once(
        described_tokens(image, request, by, SECRET, lambda token_id, owner: seen in (token_id, owner))
    )
    assert all(each.hmac == token_hmac(SECRET, each.token_id) for each in found)
    return [each.token_id for each in found]


def test_a_principal_sees_its_own_tokens_and_those_it_may_describe(image: ClusterImage) -> None:
    create(image, token_id="a", by=ALICE)
    create(image, token_id="b", by=BOB, renewers=[ALICE])
    create(image, token_id="c", by=EVE)
    assert described(image, ALICE) == ["a", "b"]
    assert described(image, EVE) == ["c"]
    assert described(image, EVE, seen="a") == ["a", "c"]
    assert described(image, EVE, seen="User:bob") == ["b", "c"]
    assert described(image, ALICE, [BOB]) == ["b"]
    assert described(image, BOB, [ALICE]) == ["b"]
    assert described(image, ALICE, []) == []


def test_the_index_finds_tokens_that_were_created_and_forgets_removed_ones(image: ClusterImage) -> None:
    index = HmacIndex(SECRET)
    hmacs = [token_hmac(SECRET, str(number)) for number in range(300)]
    for number in range(300):
        create(image, token_id=str(number))
    found = at_once(index.find(image.tokens, hmacs[7]))
    assert found is not None and found.token_id == "7"
    create(image, token_id="later")
    assert at_once(index.find(image.tokens, token_hmac(SECRET, "later"))) is not None
    image.tokens.clear()
    assert at_once(index.find(image.tokens, hmacs[7])) is None
    assert not index._ids


def test_a_snapshot_has_the_tokens(image: ClusterImage) -> None:
    create(image, renewers=[BOB])
    assert image_of_snapshot(snapshot(image), image.offset).tokens == image.tokens
