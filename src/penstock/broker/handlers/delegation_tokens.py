"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (KIP-48).

The active controller changes tokens; every broker describes them. A token is a proof of identity, so a client
needs one of its own to request it: none over plaintext, over TLS without a certificate, or with a token.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.base.access import Access
from penstock.broker.base.context import AsyncHandler, Context
from penstock.broker.base.logs import get_logger
from penstock.broker.node.controller import Controller
from penstock.metadata.delegation_tokens import (
    HmacIndex,
    TokenPolicy,
    create_token,
    described_tokens,
    expire_token,
    is_too_large,
    refused_creation,
    renew_token,
)
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, format_topic_id
from penstock.model.steps import Steps
from penstock.net.deferred import Deferred
from penstock.ports import World
from penstock.security.acls import Operation, ResourceType
from penstock.security.principal import ANONYMOUS
from penstock.wire.api import Api
from penstock.wire.apis.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.apis.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.wire.apis.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.wire.apis.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

__all__ = ["TOKEN_CHANGES", "DelegationTokenHandlers", "guarded"]

log = get_logger("security")
#: the APIs that the active controller serves
TOKEN_CHANGES: Final[tuple[Api[Any, Any], ...]] = (
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
)
#: of SHA-512
_HMAC_BYTES: Final = 64
_NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenHandlers:
    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        controller: Controller,
        world: World,
        access: Access | None,
    ) -> None:
        self._image = image
        self._controller = controller
        self._policy = TokenPolicy(
            (config.delegation_token_secret_key or "").encode(),
            config.delegation_token_max_lifetime_ms,
            config.delegation_token_expiry_time_ms,
        )
        self._clock = world.clock
        self._rng = world.rng
        self._access = access
        self._index = HmacIndex(self._policy.secret)

    async def create_delegation_token(
        self, context: Context, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        token_id = self._new_id()
        created = await self._controller.change(
            lambda: create_token(
                self._image, request, context.principal, self._policy, self._clock.now_ms(), token_id
            )
        )
        if not created.error_code:
            owner = f"{created.principal_type}:{created.principal_name}"
            log.info("token_created", token=token_id, owner=owner, requester=str(context.principal))
        return created

    def _new_id(self) -> str:
        """A random id in the form of Kafka's, which does not begin with a hyphen."""
        while (token_id := format_topic_id(TopicId(self._rng.token(16)))).startswith("-"):
            continue
        return token_id

    async def renew_delegation_token(
        self, context: Context, request: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse:
        return await self._controller.change(
            lambda: renew_token(
                self._image, request, context.principal, self._policy, self._index, self._clock.now_ms()
            )
        )

    async def expire_delegation_token(
        self, context: Context, request: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse:
        return await self._controller.change(
            lambda: expire_token(
                self._image, request, context.principal, self._policy, self._index, self._clock.now_ms()
            )
        )

    def describe_delegation_token(
        self, context: Context, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse | Deferred[DescribeDelegationTokenResponse]:
        if not _may_request(context):
            return DescribeDelegationTokenResponse(error_code=_NOT_ALLOWED)
        if not self._policy.secret:
            return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return context.in_turns(self._described(context, request))

    def _described(
        self, context: Context, request: DescribeDelegationTokenRequest
    ) -> Steps[DescribeDelegationTokenResponse]:
        access = self._access

        def may_see(token_id: str, owner: str) -> bool:
            if access is None:
                return True
            return access.allows(
                context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id, quiet=True
            ) or access.allows(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, owner, quiet=True)

        found = yield from described_tokens(
            self._image, request, context.principal, self._policy.secret, may_see
        )
        return DescribeDelegationTokenResponse(tokens=found)


def guarded(handler: AsyncHandler) -> AsyncHandler:
    """A handler that changes tokens, for clients: it refuses those that have not proved an identity."""

    async def serve(context: Context, request: Any) -> Any:
        if _may_request(context):
            # Before they are sent to the controller, which decodes them at once.
            if isinstance(request, CreateDelegationTokenRequest):
                if is_too_large(request):
                    return refused_creation(request, context.principal, ErrorCode.INVALID_REQUEST)
            elif len(request.hmac) > _HMAC_BYTES:
                return _not_found(request)
            return await handler(context, request)
        if isinstance(request, CreateDelegationTokenRequest):
            return refused_creation(request, context.principal, _NOT_ALLOWED)
        if isinstance(request, RenewDelegationTokenRequest):
            return RenewDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=-1)
        assert isinstance(request, ExpireDelegationTokenRequest)
        return ExpireDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=-1)

    return serve


def _not_found(request: Any) -> RenewDelegationTokenResponse | ExpireDelegationTokenResponse:
    error = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if isinstance(request, RenewDelegationTokenRequest):
        return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=-1)


def _may_request(context: Context) -> bool:
    if context.session.token_id is not None:
        return False
    protocol = context.listener.security_protocol
    return protocol.startswith("SASL_") or (protocol == "SSL" and context.principal != ANONYMOUS)
