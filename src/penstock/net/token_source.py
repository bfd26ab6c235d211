"""Retrieves the bearer token of a client from a token endpoint or a file.

A token is used for 80 % of its lifetime, as in Kafka's clients. A token that a broker has refused is not used
again. Retrieving takes as long as the endpoint takes to respond, so an event loop calls `fetch` in a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import msgspec

from penstock.security.bearer_settings import Token, TokenSettings, parse_response, parse_token, token_request
from penstock.security.sasl_client import LoginFailed

__all__ = ["CallbackTokens", "TokenCallback", "TokenSource"]

#: the part of a token's lifetime after which a new one is retrieved
_USED_FOR: Final = 0.8
_MAX_BYTES: Final = 1 << 20


class TokenSource:
    """The tokens of one client. `current` belongs to one thread, `fetch` to any."""

    def __init__(self, settings: TokenSettings, *, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._token: Token | None = None
        self._due_at = 0.0
        self._lock = threading.Lock()
        self.extensions = settings.extensions

    def current(self) -> str | None:
        """The token, None if a new one is due."""
        token = self._token
        return token.value if token is not None and self._now() < self._due_at else None

    def fetch(self) -> str:
        """The current token, or a new one; LoginFailed if there is none. It blocks."""
        return self.fetch_token().value

    def fetch_token(self) -> Token:
        with self._lock:
            # Another connection may have got one meanwhile.
            if self._token is not None and self._now() < self._due_at:
                return self._token
            token, now = self._retrieve(), self._now()
            if token.expires_at is not None and token.expires_at <= now:
                raise LoginFailed(f"the token of {self._settings.url} has expired")
            self._token = token
            self._due_at = now if token.expires_at is None else now + _USED_FOR * (token.expires_at - now)
            return token

    def discard(self) -> None:
        """A broker has refused the token."""
        self._token = None

    def _retrieve(self) -> Token:
        settings = self._settings
        try:
            content = _read(settings)
            if settings.is_file:
                return parse_token(content.decode())
            return parse_response(content, self._now())
        except HTTPError as e:
            with e:
                reason = _refusal(e)
            raise LoginFailed(f"the token endpoint {settings.url} answered {reason}") from None
        except HTTPException as e:
            raise LoginFailed(f"no token from {settings.url}: {e!r}") from e
        except (OSError, ValueError) as e:
            raise LoginFailed(f"no token from {settings.url}: {e}") from e


class CallbackTokens:
    """Tokens of a function, as librdkafka's clients have it: `oauth_cb` returns a token and its expiry."""

    extensions: tuple[tuple[str, str], ...] = ()

    def __init__(self, callback: Callable[[str], tuple[Any, ...]], argument: str) -> None:
        self._callback = callback
        self._argument = argument

    def current(self) -> str | None:
        return None

    def fetch(self) -> str:
        try:
            return str(self._callback(self._argument)[0])
        except Exception as e:
            raise LoginFailed(f"oauth_cb has failed: {e}") from e

    def discard(self) -> None: ...


class TokenCallback:
    """The `oauth_cb` of librdkafka's clients, for tokens that it cannot get itself. It can be pickled."""

    def __init__(self, settings: TokenSettings) -> None:
        self._settings = settings

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        token = TokenSource(self._settings).fetch_token()
        # librdkafka needs an expiry.
        expires_at = token.expires_at or time.time() + 60.0
        return token.value, expires_at, token.subject, dict(self._settings.extensions)


class _NoRedirect(HTTPRedirectHandler):
    """A redirected request would carry the client's secret to another address."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


def _read(settings: TokenSettings) -> bytes:
    request = Request(settings.url)
    if not settings.is_file:
        headers, body = token_request(settings)
        request = Request(settings.url, data=body, headers=headers, method="POST")
    with _opener(settings).open(request, timeout=settings.timeout_s) as response:
        content: bytes = response.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
    return content


def _opener(settings: TokenSettings) -> Any:
    if not settings.url.startswith("https:"):
        return build_opener(_NoRedirect)
    import ssl

    return build_opener(
        _NoRedirect, HTTPSHandler(context=ssl.create_default_context(cafile=settings.ca_file))
    )


def _refusal(error: HTTPError) -> str:
    """The status and the error fields of RFC 6749, section 5.2."""
    try:
        fields = msgspec.json.decode(error.read(_MAX_BYTES))
        named = [fields[name] for name in ("error", "error_description") if name in fields]
    except (OSError, TypeError, msgspec.MsgspecError):
        named = []
    return ": ".join([str(error.code), *map(str, named)])
