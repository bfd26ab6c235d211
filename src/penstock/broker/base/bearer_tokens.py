"""Verifies bearer tokens (JWT) against a set of public keys (JWKS), as KIP-768 describes.

Needs the extra `security`. Keys are loaded in a worker thread: at the start, at intervals, and after a token
with an unknown key id, which an attacker can send at will, at most once in ten seconds. Only asymmetric
algorithms are accepted: `none` is not, and a public key is never used as a shared secret.
"""

from __future__ import annotations

import json
import os
import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.broker.base.logs import get_logger
from penstock.model.config.listeners import is_loopback
from penstock.model.errors import InvalidConfig, PenstockError
from penstock.model.installation import pip_install
from penstock.security.sasl import Identity, TokenRefused
from penstock.security.sasl_users import parse_jaas

__all__ = ["BearerTokens"]

log = get_logger("security")
_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_UNKNOWN_KEY_S: Final = 10.0
_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 1 << 20
#: characters of the header of a token
_HEADER_MAX: Final = 8 << 10
#: the start of the year 10000; milliseconds instead of seconds are beyond it
_LAST_TIME_S: Final = 253_402_300_800
#: characters of a key id in the log
_KID_SHOWN: Final = 64
_MISSING: Final = f"OAUTHBEARER needs PyJWT and cryptography: install them with `{pip_install('security')}`"


class BearerTokens:
    """The keys of one listener, and the claims that its tokens must have."""

    def __init__(self, lookup: Callable[[str], str | None], in_thread: Callable[..., Awaitable[Any]]) -> None:
        try:
            import jwt
            from jwt.algorithms import has_crypto
        except ImportError:
            raise InvalidConfig(_MISSING) from None
        if not has_crypto:
            raise InvalidConfig(_MISSING)
        self._jwt: Any = jwt
        self._in_thread = in_thread
        url = lookup("sasl.oauthbearer.jwks.endpoint.url")
        if not url:
            raise InvalidConfig(
                "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: tokens cannot be verified"
            )
        if not url.startswith(("file:", "http://", "https://")):
            raise InvalidConfig("sasl.oauthbearer.jwks.endpoint.url must be an https, http or file URL")
        self._url = url
        # Kafka has this option in sasl.jaas.config, too.
        options = parse_jaas(lookup("sasl.jaas.config") or "x required;")
        self._ca_file = options.get("ssl.truststore.location")
        if self._ca_file is not None and not os.access(self._ca_file, os.R_OK):
            raise InvalidConfig(
                f"sasl.jaas.config: ssl.truststore.location {self._ca_file} cannot be read; it must be a PEM "
                f"file with the certificates that verify {url}"
            )
        self._refresh_s = int(lookup("sasl.oauthbearer.jwks.endpoint.refresh.ms") or 0) / 1000
        self._issuer = lookup("sasl.oauthbearer.expected.issuer") or None
        audience = lookup("sasl.oauthbearer.expected.audience") or ""
        self._audience = [each.strip() for each in audience.split(",") if each.strip()]
        for risk in _risks(url, self._audience):
            log.warning("tokens_insecure", url=url, reason=risk)
        self._skew_s = int(lookup("sasl.oauthbearer.clock.skew.seconds") or 0)
        self._subject = lookup("sasl.oauthbearer.sub.claim.name") or "sub"
        self._groups = lookup("penstock.sasl.oauthbearer.groups.claim.name") or "groups"
        #: keys by id, each with its algorithms
        self._keys: dict[str | None, tuple[Any, list[str]]] = {}
        self._loaded_at = 0.0
        self._missed = False

    async def load(self) -> None:
        """Load the keys; PenstockError if there are none."""
        try:
            content = await self._in_thread(_read, self._url, self._ca_file)
            self._keys = self._parse(content)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
            raise PenstockError(f"cannot load the keys of tokens from {self._url}: {e}") from e
        self._loaded_at, self._missed = time.monotonic(), False

    async def refresh_if_due(self) -> None:
        """Load the keys again at intervals, and soon after a token with an unknown key."""
        age_s = time.monotonic() - self._loaded_at
        if age_s < self._refresh_s and not (self._missed and age_s >= _UNKNOWN_KEY_S):
            return
        try:
            await self.load()
        except PenstockError as e:
            self._loaded_at = time.monotonic()
            log.warning("token_keys_unavailable", error=str(e))

    def verify(self, token: str) -> Identity:
        """The identity in a token; TokenRefused if it is not valid. Runs in a worker thread."""
        try:
            return self._identity(token)
        except self._jwt.PyJWTError as e:
            raise TokenRefused(f"{type(e).__name__}: {e}") from e
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as e:
            # PyJWT does not expect huge numbers; older versions do not expect JSON that is nested too deep.
            raise TokenRefused(f"malformed token: {type(e).__name__}") from e

    def _identity(self, token: str) -> Identity:
        key, algorithms = self._key(_header(token))
        claims = self._jwt.decode(
            token,
            key,
            algorithms=algorithms,
            audience=self._audience or None,
            issuer=self._issuer,
            leeway=self._skew_s,
            options={"require": ["exp", self._subject], "verify_aud": bool(self._audience)},
        )
        for claim in ("exp", "nbf", "iat"):
            if claim in claims:
                _check_time(claim, claims[claim])
        name = claims[self._subject]
        if not isinstance(name, str) or not name:
            raise TokenRefused(f"the claim {self._subject} is not a name")
        groups = claims.get(self._groups, ())
        groups = (groups,) if isinstance(groups, str) else groups
        listed = (
            tuple(each for each in groups if isinstance(each, str))
            if isinstance(groups, list | tuple)
            else ()
        )
        return Identity(name, float(claims["exp"]), listed)

    def _key(self, header: dict[str, Any]) -> tuple[Any, list[str]]:
        kid = header.get("kid")
        if not isinstance(kid, str | None):
            raise TokenRefused("the key id of the token is not a text")
        key = self._keys.get(kid)
        if key is None and kid is None and len(self._keys) == 1:
            key = next(iter(self._keys.values()))
        if key is None:
            self._missed = True
            raise TokenRefused("no key of the JWKS has the key id of the token")
        return key

    def _parse(self, content: bytes) -> dict[str | None, tuple[Any, list[str]]]:
        keys: dict[str | None, tuple[Any, list[str]]] = {}
        for each in json.loads(content)["keys"]:
            # A symmetric key in a JWKS would be a secret that is published.
            if not isinstance(each, dict) or each.get("kty") == "oct" or each.get("use", "sig") != "sig":
                continue
            try:
                key = self._jwt.PyJWK(each)
            except (AttributeError, LookupError, TypeError, ValueError, self._jwt.PyJWTError) as e:
                # RFC 7517, section 5: such a key is ignored. It must not keep out new keys of the issuer.
                log.warning("token_key_ignored", kid=str(each.get("kid"))[:_KID_SHOWN], error=str(e))
                continue
            keys[each.get("kid")] = key.key, _algorithms(each, key.algorithm_name)
        if not keys:
            raise ValueError("it has no public keys")
        return keys


def _header(token: str) -> dict[str, Any]:
    """The header of a token, which is not verified. The rest is decoded once, with the key."""
    text = token.partition(".")[0]
    if len(text) > _HEADER_MAX:
        raise TokenRefused(f"the header of the token has {len(text)} characters, limit {_HEADER_MAX}")
    header = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    if not isinstance(header, dict):
        raise TokenRefused("the header of the token is not a JSON object")
    return header


def _check_time(claim: str, value: object) -> None:
    """Refuse values that are no time (RFC 7519, section 2): PyJWT accepts texts, and any year."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < _LAST_TIME_S:  # type: ignore[operator]
        raise TokenRefused(f"the claim {claim} is not a time before the year 10000")


def _risks(url: str, audience: Sequence[str]) -> Iterator[str]:
    """Settings that accept more tokens than an operator may expect."""
    if not audience:
        yield (
            "tokens that were issued for other services are accepted: set sasl.oauthbearer.expected.audience"
        )
    if url.startswith("http:") and not is_loopback(urlsplit(url).hostname or ""):
        yield "the keys come without encryption, so the network can replace them: use an https URL"


def _algorithms(key: dict[str, Any], name: str) -> list[str]:
    """The algorithms of a key: the one that it names, else all of RSA, or the one of its curve."""
    if key.get("kty") == "RSA" and "alg" not in key:
        return [each for each in _ALGORITHMS if each[:2] in ("RS", "PS")]
    return [name] if name in _ALGORITHMS else []


def _read(url: str, ca_file: str | None) -> bytes:
    # Only OAUTHBEARER pays for the imports.
    from http.client import HTTPException
    from urllib.error import HTTPError

    from penstock.net.redirects import opener

    try:
        with opener(url, ca_file).open(url, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(_MAX_BYTES + 1)
    except HTTPError as e:
        with e:
            raise ValueError(str(e)) from None
    except HTTPException as e:
        raise ValueError(f"the response is incomplete: {e!r}") from e
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
    return content
