"""Decisions about delegation tokens (KIP-48, KIP-373): who gets, renews, ends and sees one.

A token has an owner, whose rights it gives, and a requester, who created it. Owner and renewers may renew and
end it. Errors come in the order of Kafka's controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.metadata.features import METADATA_VERSION
from penstock.metadata.image import ClusterImage
from penstock.metadata.levels import TOKENS
from penstock.metadata.token_table import DelegationTokens
from penstock.model.errors import ErrorCode
from penstock.model.steps import Steps, is_slice_over
from penstock.security.delegation_tokens import token_hmac
from penstock.security.principal import USER, Principal, parse_principal
from penstock.wire.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.apis.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
)
from penstock.wire.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.wire.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import DelegationTokenRecord, RemoveDelegationTokenRecord

__all__ = [
    "HmacIndex",
    "TokenPolicy",
    "create_token",
    "described_tokens",
    "expire_token",
    "is_too_large",
    "owner_of",
    "refused_creation",
    "removed_tokens",
    "renew_token",
]

#: tokens of a cluster, renewers of a token, and characters of its principals: Kafka has no limits
_TOKENS_MAX: Final = 100_000
_RENEWERS_MAX: Final = 1000
_CHARACTERS_MAX: Final = 64 << 10
#: of one owner: a user without rights can create tokens for itself, and must not take all of those
_TOKENS_OF_OWNER_MAX: Final = 10_000
_CHARACTERS_OF_OWNER_MAX: Final = 4 << 20
#: tokens that one decision removes
_REMOVED_MAX: Final = 1000
#: the level of metadata.version from which on Kafka has the records of tokens (3.6-IV2)
_LEVEL: Final = 14
_TIME_MAX: Final = (1 << 63) - 1


class TokenPolicy(NamedTuple):
    """The configs of a node about tokens. Without a secret there are none."""

    secret: bytes
    max_lifetime_ms: int
    renewal_ms: int


class HmacIndex:
    """Finds tokens by their HMACs, which the metadata does not have. Keeps those that it has computed."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._ids: dict[bytes, str] = {}
        self._known: set[str] = set()

    def find(
        self, tokens: Mapping[str, DelegationTokenRecord], wanted: bytes
    ) -> Steps[DelegationTokenRecord | None]:
        """The token with an HMAC; None if there is none."""
        found = tokens.get(self._ids.get(wanted, ""))
        if found is not None:
            return found
        if len(self._known) > 2 * len(tokens) + 100:
            self._ids, self._known = {}, set()
        for number, token_id in enumerate(list(tokens), 1):
            if token_id not in self._known:
                self._known.add(token_id)
                self._ids[token_hmac(self._secret, token_id)] = token_id
            if is_slice_over(number):
                yield
        return tokens.get(self._ids.get(wanted, ""))


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """The owner of the token that a request creates."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def refused_creation(
    request: CreateDelegationTokenRequest, requester: Principal, code: ErrorCode
) -> CreateDelegationTokenResponse:
    """The response of a broker that does not pass the request to the controller."""
    owner = owner_of(request, requester)
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def create_token(
    image: ClusterImage,
    request: CreateDelegationTokenRequest,
    requester: Principal,
    policy: TokenPolicy,
    now_ms: int,
    token_id: str,
) -> tuple[list[Struct], CreateDelegationTokenResponse]:
    owner = owner_of(request, requester)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    error = _creation_error(image, request, owner, policy)
    if error:
        response.error_code = error
        return [], response
    lifetime_ms = policy.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = _later(now_ms, lifetime_ms)
    expiry_ms = min(max_ms, _later(now_ms, policy.renewal_ms))
    response.issue_timestamp_ms, response.expiry_timestamp_ms = now_ms, expiry_ms
    response.max_timestamp_ms = max_ms
    response.token_id, response.hmac = token_id, token_hmac(policy.secret, token_id)
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=max_ms,
        expiration_timestamp=expiry_ms,
        token_id=token_id,
    )
    return [record], response


def is_too_large(request: CreateDelegationTokenRequest) -> bool:
    """Whether no token could have so many renewers, or so long names."""
    names = [
        request.owner_principal_name or "",
        *(each.principal_name for each in request.renewers[:_RENEWERS_MAX]),
    ]
    return len(request.renewers) > _RENEWERS_MAX or sum(map(len, names)) > _CHARACTERS_MAX


def _creation_error(
    image: ClusterImage, request: CreateDelegationTokenRequest, owner: Principal, policy: TokenPolicy
) -> ErrorCode:
    renewers = request.renewers
    if is_too_large(request):
        return ErrorCode.INVALID_REQUEST
    # A login with the token is one of a user: a token of any other principal would act as one.
    if owner.type != USER or any(each.principal_type != USER for each in renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    off = _unavailable(image, policy)
    if off:
        return off
    if len(image.tokens) >= _TOKENS_MAX or _has_too_many(image.tokens, str(owner)):
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.NONE


def _has_too_many(tokens: DelegationTokens, owner: str) -> bool:
    """Whether an owner gets no more tokens. The last one may exceed the number of characters."""
    return tokens.count[owner] >= _TOKENS_OF_OWNER_MAX or tokens.characters[owner] >= _CHARACTERS_OF_OWNER_MAX


def renew_token(
    image: ClusterImage,
    request: RenewDelegationTokenRequest,
    requester: Principal,
    policy: TokenPolicy,
    index: HmacIndex,
    now_ms: int,
) -> Steps[tuple[list[Struct], RenewDelegationTokenResponse]]:
    off = _unavailable(image, policy)
    if off:
        return [], RenewDelegationTokenResponse(error_code=off)
    token = yield from index.find(image.tokens, bytes(request.hmac))
    if token is None:
        return [], RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if _is_over(token, now_ms):
        return [], RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not _belongs_to(token, str(requester)):
        return [], RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    renewal_ms = policy.renewal_ms
    if request.renew_period_ms > 0:
        renewal_ms = min(renewal_ms, request.renew_period_ms)
    changed = _until(token, _later(now_ms, renewal_ms))
    return [changed], RenewDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp)


def expire_token(
    image: ClusterImage,
    request: ExpireDelegationTokenRequest,
    requester: Principal,
    policy: TokenPolicy,
    index: HmacIndex,
    now_ms: int,
) -> Steps[tuple[list[Struct], ExpireDelegationTokenResponse]]:
    """A negative period removes the token, also one that has expired."""
    off = _unavailable(image, policy)
    if off:
        return [], ExpireDelegationTokenResponse(error_code=off)
    token = yield from index.find(image.tokens, bytes(request.hmac))
    if token is None:
        return [], ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not _belongs_to(token, str(requester)):
        return [], ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if request.expiry_time_period_ms < 0:
        removed = RemoveDelegationTokenRecord(token_id=token.token_id)
        return [removed], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
    if _is_over(token, now_ms):
        return [], ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
    changed = _until(token, _later(now_ms, request.expiry_time_period_ms))
    return [changed], ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp)


def removed_tokens(image: ClusterImage, now_ms: int) -> Steps[tuple[list[Struct], int]]:
    """The removal of expired tokens, of so many at once; and how many those are."""
    records: list[Struct] = []
    for number, token in enumerate(list(image.tokens.values()), 1):
        if _is_over(token, now_ms):
            records.append(RemoveDelegationTokenRecord(token_id=token.token_id))
            if len(records) == _REMOVED_MAX:
                break
        if is_slice_over(number):
            yield
    return records, len(records)


def described_tokens(
    image: ClusterImage,
    request: DescribeDelegationTokenRequest,
    requester: Principal,
    secret: bytes,
    may_see: Callable[[str, str], bool],
) -> Steps[list[DescribedDelegationToken]]:
    """The tokens of the requested owners, or of all, that the requester may see.

    `may_see` decides about tokens that are not the requester's, by their ids and owners.
    """
    wanted: set[str] | None = None
    if request.owners is not None:
        wanted = set()
        for number, each in enumerate(request.owners, 1):
            wanted.add(f"{each.principal_type}:{each.principal_name}")
            if is_slice_over(number):
                yield
    found: list[DescribedDelegationToken] = []
    if wanted is not None and not wanted:
        return found
    own = str(requester)
    for token in list(image.tokens.values()):
        is_wanted = wanted is None or token.owner in wanted or not wanted.isdisjoint(token.renewers)
        if is_wanted and (_belongs_to(token, own) or may_see(token.token_id, token.owner)):
            found.append(_described(token, secret))
        yield
    return found


def _described(token: DelegationTokenRecord, secret: bytes) -> DescribedDelegationToken:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    return DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ],
    )


def _unavailable(image: ClusterImage, policy: TokenPolicy) -> ErrorCode:
    if not policy.secret:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if not TOKENS.is_on(image.features) or image.features.get(METADATA_VERSION, 0) < _LEVEL:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _belongs_to(token: DelegationTokenRecord, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def _is_over(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _until(token: DelegationTokenRecord, time_ms: int) -> DelegationTokenRecord:
    """The record of a token that ends at another time, which is not after its last one."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=min(token.max_timestamp, time_ms),
        token_id=token.token_id,
    )


def _later(now_ms: int, duration_ms: int) -> int:
    return min(_TIME_MAX, now_ms + duration_ms)
