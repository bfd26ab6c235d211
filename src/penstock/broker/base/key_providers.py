"""Providers of the keys that encrypt data directories: a command, Vault's transit engine, AWS KMS.

They are asked before the event loop starts. An attempt has a timeout, and is repeated if the service may come
back. Errors are one line and have no part of a key, a token or an answer.
"""

from __future__ import annotations

import json
import shlex
import ssl
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from penstock.encryption.directory_keys import KeyProvider
from penstock.model.config import BrokerConfig
from penstock.model.config.encryption_keys import AWS_KMS, COMMAND, FILE_PROVIDER, VAULT_TRANSIT
from penstock.model.errors import InvalidConfig, PenstockError
from penstock.model.installation import pip_install
from penstock.security.hosts import is_local_host

__all__ = ["AwsKms", "VaultTransit", "key_provider", "keys_text"]

T = TypeVar("T")
_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.5
_ANSWER_BYTES_MAX: Final = 1 << 20
#: what Vault answers while it is sealed, a standby, or limits requests
_RETRIED: Final = frozenset({429, 472, 473, 500, 502, 503, 504})
#: bound to the wrapped keys by AWS KMS, and shown in its audit log
_CONTEXT: Final = {"penstock": "directory-key"}


def keys_text(config: BrokerConfig) -> str | None:
    """The keys of the providers `file` and `command`; None if there are none."""
    provider = config.penstock_encryption_key_provider
    if provider == COMMAND:
        command = _needed(config.penstock_encryption_key_command, "penstock.encryption.key.command", COMMAND)
        return _output(command, _timeout_s(config))
    return config.penstock_encryption_keys if provider == FILE_PROVIDER else None


def key_provider(config: BrokerConfig) -> KeyProvider | None:
    """The provider that wraps the keys of directories; None if the keys come as a text."""
    timeout_s = _timeout_s(config)
    match config.penstock_encryption_key_provider:
        case "vault-transit":
            return VaultTransit(
                _needed(
                    config.penstock_encryption_vault_address,
                    "penstock.encryption.vault.address",
                    VAULT_TRANSIT,
                ),
                _needed(
                    config.penstock_encryption_vault_token, "penstock.encryption.vault.token", VAULT_TRANSIT
                ),
                _needed(config.penstock_encryption_key_id, "penstock.encryption.key.id", VAULT_TRANSIT),
                mount=config.penstock_encryption_vault_mount,
                namespace=config.penstock_encryption_vault_namespace,
                authorities=config.penstock_encryption_vault_ca_location,
                timeout_s=timeout_s,
            )
        case "aws-kms":
            return AwsKms(
                _needed(config.penstock_encryption_key_id, "penstock.encryption.key.id", AWS_KMS),
                region=config.penstock_encryption_aws_region,
                endpoint=config.penstock_encryption_aws_endpoint,
                timeout_s=timeout_s,
            )
    return None


def _timeout_s(config: BrokerConfig) -> float:
    return config.penstock_encryption_key_timeout_ms / 1000


def _needed(value: str | None, name: str, provider: str) -> str:
    if not value:
        raise InvalidConfig(f"penstock.encryption.key.provider={provider} needs {name}")
    return value


def _output(command: str, timeout_s: float) -> str:
    """The standard output of a command, which has keys and is not logged."""
    try:
        words = shlex.split(command)
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
        text = done.stdout.decode()
    except subprocess.TimeoutExpired:
        reason = f"it has not ended after {timeout_s:g} seconds"
    except UnicodeDecodeError:
        reason = "its output is not UTF-8 text"
    except (OSError, ValueError, IndexError) as e:
        reason = str(e)
    else:
        if done.returncode == 0 and text.strip():
            return text
        reason = f"its exit status is {done.returncode}" if done.returncode else "it has written nothing"
    raise PenstockError(f"penstock.encryption.key.command has no keys: {reason}")


def _repeated(service: str, attempt: Callable[[], bytes]) -> bytes:
    """The result of `attempt`, repeated after a `_Temporary` error."""
    for number in range(_ATTEMPTS):
        if number:
            time.sleep(_PAUSE_S * 2 ** (number - 1))
        try:
            return attempt()
        except _TemporaryError as e:
            reason = str(e)
    raise PenstockError(f"{service} does not answer ({_ATTEMPTS} attempts): {reason}")


class _TemporaryError(Exception):
    """The service may answer later."""


def _within(timeout_s: float, call: Callable[[], T]) -> T:
    """The result of `call`, or its error; _TemporaryError if it takes longer than `timeout_s`.

    Why a thread: timeouts of sockets count for each operation, so that a server that sends a byte now and
    then, or a resolver, could hold up a start for any time. The thread ends with the process.
    """
    done: Future[T] = Future()

    def attempt() -> None:
        try:
            done.set_result(call())
        except Exception as e:  # noqa: BLE001 - the caller raises it
            done.set_exception(e)

    Thread(target=attempt, name="key-provider", daemon=True).start()
    try:
        return done.result(timeout_s)
    except FutureTimeout:
        raise _TemporaryError(f"no answer within {timeout_s:g} seconds") from None


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would send the token to another server."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class VaultTransit:
    """The transit engine of Vault or OpenBao."""

    name = VAULT_TRANSIT

    def __init__(
        self,
        address: str,
        token: str,
        key: str,
        *,
        mount: str = "transit",
        namespace: str | None = None,
        authorities: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        if not _is_protected(address):
            raise InvalidConfig(
                f"penstock.encryption.vault.address {address!r} is not https://HOST:PORT: the token would be "
                f"sent in plain text"
            )
        url = urlsplit(address)
        try:
            context = ssl.create_default_context(cafile=authorities)
        except (OSError, ssl.SSLError) as e:
            raise InvalidConfig(f"penstock.encryption.vault.ca.location {authorities}: {e}") from e
        handlers: list[BaseHandler] = [HTTPSHandler(context=context), _NoRedirects()]
        if url.scheme == "http":
            # A proxy of the environment would get the token and the key in plain text.
            handlers.append(ProxyHandler({}))
        self._opener = build_opener(*handlers)
        self._base = f"{address.rstrip('/')}/v1/{quote(mount.strip('/'))}"
        self._where = f"Vault at {url.netloc}"
        self._key = key
        self._timeout_s = timeout_s
        self._headers = {"X-Vault-Token": token, "Content-Type": "application/json"}
        if namespace:
            self._headers["X-Vault-Namespace"] = namespace

    def wrap(self, secret: bytes) -> str:
        return self._ask("encrypt", {"plaintext": b64encode(secret).decode()}, "ciphertext")

    def unwrap(self, wrapped: str) -> bytes:
        try:
            return b64decode(self._ask("decrypt", {"ciphertext": wrapped}, "plaintext"), validate=True)
        except ValueError:
            raise PenstockError(f"{self._where} has answered something else than a key") from None

    def _ask(self, operation: str, body: dict[str, str], field: str) -> str:
        send = partial(self._send, operation, body)
        data = _repeated(self._where, lambda: _within(self._timeout_s, send))
        try:
            return str(json.loads(data)["data"][field])
        except (ValueError, KeyError, TypeError):
            raise PenstockError(f"{self._where} has answered something else than a key") from None

    def _send(self, operation: str, body: dict[str, str]) -> bytes:
        url = f"{self._base}/{operation}/{quote(self._key, safe='')}"
        request = Request(url, json.dumps(body).encode(), self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                answer: bytes = response.read(_ANSWER_BYTES_MAX)
                return answer
        except HTTPError as e:
            code = e.code
            e.close()
            if code in _RETRIED:
                raise _TemporaryError(f"status {code}") from None
            raise PenstockError(
                f"{self._where} refuses to {operation} with the key {self._key} (status {code}): check "
                f"penstock.encryption.key.id, the token and its policy"
            ) from None
        except (URLError, OSError) as e:
            reason = getattr(e, "reason", e)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise PenstockError(f"{self._where} is not trusted: {reason.verify_message}") from None
            raise _TemporaryError(str(reason)) from None


def _is_protected(address: str) -> bool:
    """Returns true if requests to an address are encrypted, or stay on this machine."""
    try:
        url = urlsplit(address)
        host = url.hostname or ""
    except ValueError:
        return False
    if url.scheme != "http":
        return url.scheme == "https" and bool(host)
    return is_local_host(f"[{host}]" if ":" in host else host) and bool(host)


class AwsKms:
    """AWS KMS, through boto3: credentials come from its usual places."""

    name = AWS_KMS

    def __init__(
        self, key: str, *, region: str | None = None, endpoint: str | None = None, timeout_s: float = 10.0
    ) -> None:
        if endpoint is not None and not _is_protected(endpoint):
            raise InvalidConfig(
                f"penstock.encryption.aws.endpoint {endpoint!r} is not https://HOST: keys would be sent in "
                f"plain text"
            )
        try:
            boto3, botocore = import_module("boto3"), import_module("botocore.config")
            errors = import_module("botocore.exceptions")
        except ImportError:
            raise PenstockError(
                "penstock.encryption.key.provider=aws-kms needs boto3: install it with "
                f"`{pip_install('kms')}`"
            ) from None
        self._errors: tuple[type[Exception], ...] = (errors.BotoCoreError, errors.ClientError)
        limits = botocore.Config(
            connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": _ATTEMPTS}
        )
        try:
            self._client: Any = boto3.client("kms", region_name=region, endpoint_url=endpoint, config=limits)
        except (*self._errors, ValueError) as e:
            raise PenstockError(f"AWS KMS cannot be used: {e}") from e
        self._key = key
        # boto3 repeats calls by itself, with pauses.
        self._deadline_s = _ATTEMPTS * (timeout_s + _PAUSE_S)

    def wrap(self, secret: bytes) -> str:
        answer = self._ask("encrypt", Plaintext=secret)
        return b64encode(answer["CiphertextBlob"]).decode()

    def unwrap(self, wrapped: str) -> bytes:
        try:
            blob = b64decode(wrapped, validate=True)
        except ValueError:
            raise PenstockError("a key that AWS KMS has wrapped is damaged") from None
        return bytes(self._ask("decrypt", CiphertextBlob=blob)["Plaintext"])

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        call = partial(
            getattr(self._client, operation), KeyId=self._key, EncryptionContext=_CONTEXT, **arguments
        )
        try:
            answer: dict[str, Any] = _within(self._deadline_s, call)
        except _TemporaryError as e:
            raise PenstockError(f"AWS KMS does not answer: {e}") from None
        except self._errors as e:
            code = getattr(e, "response", {}).get("Error", {}).get("Code", type(e).__name__)
            raise PenstockError(
                f"AWS KMS refuses to {operation} with the key {self._key}, or does not answer ({code})"
            ) from None
        return answer
