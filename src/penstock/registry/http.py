"""HTTP requests to a registry that may be slow, huge or hostile, in threads that nothing else uses.

Invariant: a response has `BYTES_MAX` bytes and `_TIMEOUT_S` seconds at most, from the connection to its last
byte, so a registry that sends single bytes slowly holds a thread no longer than a silent registry.
Requests that wait for a thread are bounded, too. No request follows a redirect or uses a proxy of the
environment: either would get the credentials.

JSON is decoded in the thread into types that have only the fields which are used.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.visible import visible
from penstock.registry.settings import RegistrySettings

__all__ = ["BYTES_MAX", "RegistryHttp", "RegistryRefused", "RegistryUnreachable"]

T = TypeVar("T")
_TIMEOUT_S: Final = 10.0
BYTES_MAX: Final = 4 << 20
#: bytes and characters of an error
_ERROR_BYTES: Final = 64 << 10
_ERROR_TEXT: Final = 2_000
_THREADS: Final = 4
#: requests that run or wait
_REQUESTS_MAX: Final = 64
_JSON: Final = "application/vnd.schemaregistry.v1+json"
_READ: Final = 64 << 10


class RegistryRefused(PenstockError):
    """The registry has answered with an error; `status` is that of HTTP, `code` the registry's own."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryUnreachable(PenstockError):
    """The registry has not responded, or its response is not one of the API."""


class _Error(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class _Bytes(io.RawIOBase):
    """The bytes of a socket until a deadline, however slowly they come.

    `file` is that of the socket, which it holds open: a connection closes its socket before the body is read.
    """

    def __init__(self, sock: socket.socket, file: IO[bytes], deadline: float) -> None:
        self._sock = sock
        self._file = file
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        super().close()
        self._file.close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, deadline: float, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_Bytes(sock, self.fp, deadline))


class RegistryHttp:
    """Requests to one registry. Owned by the thread of the event loop, except `get`, which blocks."""

    def __init__(
        self, settings: RegistrySettings, *, timeout_s: float = _TIMEOUT_S, name: str = "registry"
    ) -> None:
        self.settings = settings
        self._timeout_s = timeout_s
        parts = urlsplit(settings.url)
        self._host, self._port, self._prefix = parts.hostname or "", parts.port, parts.path
        self._tls = _tls(settings) if parts.scheme == "https" else None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._requests = 0

    async def send(self, shape: type[T], method: str, path: str, body: object = None) -> T:
        """The answer in a shape; RegistryRefused or RegistryUnreachable."""
        return await self.run(partial(self.get, shape, path, method=method, body=body))

    async def run(self, work: partial[T]) -> T:
        """The result of work with blocking requests, in a thread."""
        if self._requests >= _REQUESTS_MAX:
            raise RegistryUnreachable("too many requests wait for the schema registry: try again")
        loop = asyncio.get_running_loop()
        self._requests += 1
        future = loop.run_in_executor(self._threads, work)
        # A cancelled request runs to its end in its thread.
        future.add_done_callback(self._ended)
        return await asyncio.shield(future)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._requests -= 1
        if not future.cancelled():
            # Retrieved, also if the page that asked for it is gone.
            future.exception()

    def get(self, shape: type[T], path: str, *, method: str = "GET", body: object = None) -> T:
        """The answer in a shape. Blocks, in any thread."""
        status, data = self._exchange(method, path, None if body is None else msgspec.json.encode(body))
        if not 200 <= status < 300:
            raise self._refused(status, data)
        if len(data) > BYTES_MAX:
            raise RegistryUnreachable(f"the schema registry answers with more than {BYTES_MAX >> 20} MiB")
        try:
            return msgspec.json.decode(data, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            what = f"{method} {path.partition('?')[0]}"
            raise RegistryUnreachable(
                f"the schema registry answers {what} with what its API does not have: {error}"
            ) from error

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """The status and the beginning of the body."""
        deadline = time.monotonic() + self._timeout_s
        headers = {"Accept": f"{_JSON}, application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = _JSON
        if self.settings.authorization is not None:
            headers["Authorization"] = self.settings.authorization
        connection = self._connection(deadline)
        try:
            connection.request(method, self._prefix + path, body, headers)
            with connection.getresponse() as answer:
                is_error = not 200 <= answer.status < 300
                return answer.status, _body(answer, _ERROR_BYTES if is_error else BYTES_MAX + 1)
        except TimeoutError as error:
            raise RegistryUnreachable(
                f"the schema registry at {self.settings.url} does not answer within {self._timeout_s:g} s"
            ) from error
        except (OSError, HTTPException, ValueError) as error:
            raise RegistryUnreachable(
                f"the schema registry at {self.settings.url} does not answer: {self._shown(str(error))}"
            ) from error
        finally:
            connection.close()

    def _connection(self, deadline: float) -> HTTPConnection:
        timeout = _left(deadline)
        if self._tls is None:
            connection = HTTPConnection(self._host, self._port, timeout=timeout)
        else:
            connection = HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        connection.response_class = partial(_Response, deadline=deadline)  # type: ignore[assignment]
        return connection

    def _refused(self, status: int, data: bytes) -> RegistryRefused:
        """The registry's own words. A page without them, such as that of a proxy, is not shown."""
        try:
            found = msgspec.json.decode(data, type=_Error)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = _Error()
        if status in (401, 403):
            text = "the schema registry refuses the credentials"
        elif 300 <= status < 400:
            text = f"the schema registry redirects to another address (HTTP {status}): give its own"
        else:
            text = "the schema registry refuses it"
        said = self._shown(found.message) or f"HTTP {status}"
        return RegistryRefused(status, found.error_code, f"{text}: {said}")

    def _shown(self, text: str) -> str:
        """A text of the registry for a page, without the credentials that it may have repeated."""
        for secret in self.settings.secrets:
            text = text.replace(secret, "***")
        return visible(text[:_ERROR_TEXT])


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left


def _body(answer: HTTPResponse, most: int) -> bytes:
    """At most `most` bytes. Memory is for what has come, whatever length the registry has stated."""
    parts, size = [], 0
    while size < most and (part := answer.read1(min(_READ, most - size))):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _tls(settings: RegistrySettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ca_file)
    if settings.certificate_file is not None:
        context.load_cert_chain(settings.certificate_file)
    return context
