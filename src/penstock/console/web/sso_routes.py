"""Routes of single sign-on: to the provider, and back with its answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from penstock.console.kafka.cluster import NotReachable
from penstock.console.sso.flow import (
    LOGIN_S,
    Pending,
    SsoFailed,
    answer_of,
    authorization_url,
    check_answer,
    logout_url,
    new_pending,
    opened,
    sealed,
    user_of,
)
from penstock.console.sso.settings import CALLBACK, SsoSettings
from penstock.console.web.login_limits import TooManyLogins
from penstock.console.web.sessions import LoginRefused, Session, Sessions, address_of, set_session_cookie

if TYPE_CHECKING:
    from penstock.console.sso.tokens import SsoTokens

__all__ = ["Sso", "sso_routes"]

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)
_THREADS: Final = 4
_SEE_OTHER: Final = 303


class Sso:
    """Single sign-on of one console. Owned by the thread of the event loop."""

    def __init__(self, settings: SsoSettings) -> None:
        from penstock.console.sso.provider import Provider

        self.settings = settings
        self._provider = Provider(settings)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="console-sso")
        #: signs the cookies of logins that are under way; those of an earlier process are void
        self._key = secrets.token_bytes(32)
        #: such a cookie cannot be set by a page of a neighbouring host name
        self.cookie = f"{'__Host-' if settings.is_secure else ''}penstock_sso"

    async def begin(self, page: str) -> tuple[str, str]:
        """The address of the provider's login page, and the cookie of this login."""
        metadata = await self._in_thread(self._provider.metadata)
        pending = new_pending(page, time.time(), lambda: secrets.token_urlsafe(32))
        return authorization_url(self.settings, metadata, pending), sealed(pending, self._key)

    def pending(self, cookie: str, query: dict[str, str]) -> Pending:
        """The login that an answer belongs to; SsoFailed if there is none, or if the answer is a refusal."""
        found = opened(cookie, self._key, time.time())
        check_answer(query, found)
        return found

    async def finish(self, pending: Pending, query: dict[str, str]) -> tuple[SsoTokens, str, str]:
        """The tokens, and the user's name and subject; SsoFailed if the answer is not accepted."""
        return await self._in_thread(lambda: self._tokens(pending, query))

    def _tokens(self, pending: Pending, query: dict[str, str]) -> tuple[SsoTokens, str, str]:
        from penstock.console.sso.tokens import SsoTokens

        provider = self._provider
        code = answer_of(query, pending, provider.metadata())
        answer = provider.exchange(code, pending.verifier)
        if answer.id_token is None:
            raise SsoFailed("provider", "the provider has sent no ID token")
        claims = provider.claims(answer.id_token, pending.nonce)
        return SsoTokens(provider, answer, claims), user_of(claims, self.settings), claims["sub"]

    async def logout_url(self, session: Session | None) -> str | None:
        """Where the browser ends its session at the provider; None if there is no such place."""
        if session is None or session.tokens is None:
            return None
        try:
            metadata = await self._in_thread(self._provider.metadata)
        except SsoFailed:
            return None
        return logout_url(self.settings, metadata, session.tokens.id_token, secrets.token_urlsafe(16))

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


def sso_routes(sessions: Sessions, sso: Sso | None) -> list[Route]:
    """No routes without a provider."""
    if sso is None:
        return []
    secure = sso.settings.is_secure

    async def login(request: Request) -> Response:
        try:
            url, cookie = await sso.begin(request.query_params.get("page", ""))
        except SsoFailed as failed:
            return _back(failed)
        response = RedirectResponse(url, _SEE_OTHER, headers={"Cache-Control": "no-store"})
        # Lax: the provider's answer is a navigation from another site.
        response.set_cookie(sso.cookie, cookie, LOGIN_S, httponly=True, samesite="lax", secure=secure)
        return response

    async def callback(request: Request) -> Response:
        try:
            response = await _completed(sessions, sso, request)
        except SsoFailed as failed:
            response = _back(failed)
        response.delete_cookie(sso.cookie, httponly=True, samesite="lax", secure=secure)
        return response

    return [Route("/sso/login", login), Route(CALLBACK, callback)]


async def _completed(sessions: Sessions, sso: Sso, request: Request) -> Response:
    address, query = address_of(request), dict(request.query_params)
    # Any page can send browsers here. Why before the limit: it could lock out their address otherwise.
    pending = sso.pending(request.cookies.get(sso.cookie, ""), query)
    try:
        with sessions.attempt(address, None):
            tokens, user, subject = await sso.finish(pending, query)
            token = await sessions.log_in_with(tokens, user, subject, address)
    except TooManyLogins as error:
        raise SsoFailed("limit", str(error)) from error
    except LoginRefused as error:
        raise SsoFailed("rejected", str(error)) from error
    except NotReachable as error:
        raise SsoFailed("brokers", str(error)) from error
    response = RedirectResponse("/" + pending.page, _SEE_OTHER, headers={"Cache-Control": "no-store"})
    set_session_cookie(response, request, token)
    return response


def _back(failed: SsoFailed) -> Response:
    """The login page with the reason. The details go to the log: a provider's text may be anyone's."""
    _log.warning("single sign-on has failed: %s", failed)
    return RedirectResponse(f"/?sso={failed.code}", _SEE_OTHER, headers={"Cache-Control": "no-store"})
