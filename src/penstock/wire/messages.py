"""Whole messages: header and body of requests and responses, from and to frames.

Decoded frames do not include the four bytes of their size; encoded ones do. Flexible versions have request
header v2 and response header v1 (each with tagged fields, which are unused), the others v1 and v0.
ApiVersions responses always have header v0: the client may not know our flexible versions yet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer, FileRange
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis import APIS
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.compiler import Part
from penstock.wire.varint import skip_tags

__all__ = [
    "RequestHeader",
    "Skeleton",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_request_header",
    "encode_response",
    "request_writer",
    "response_body_offset",
    "response_correlation_id",
    "response_reader",
    "response_skeleton",
    "response_writer",
    "sliced_response_writer",
    "with_header",
]

#: the least size of a piece of a large response, except for the last one
_PIECE_BYTES: Final = 256 << 10
#: api key, api version, correlation id, length of the client id
_REQUEST_HEADER = struct.Struct(">hhih")
_REQUEST_PREFIX = struct.Struct(">ihhih")
_RESPONSE_V0 = struct.Struct(">ii")
_RESPONSE_V1 = struct.Struct(">iiB")
_CORRELATION = struct.Struct(">i")
_API_VERSIONS_KEY = API_VERSIONS.key
_unpack_request_header = _REQUEST_HEADER.unpack_from
_REQUEST_HEADER_SIZE = _REQUEST_HEADER.size
_FLEXIBLE_FROM = {api.key: api.flexible_from for api in APIS.values()}
_NEVER = 1 << 15
_NUMBER_FORMATS = {4: "i", 8: "q"}

#: a response that is encoded but for its correlation id and three numbers (`response_skeleton`)
Skeleton: TypeAlias = Callable[[int, tuple[int, int, int]], tuple[bytes]]


class RequestHeader(NamedTuple):
    """The header of a request. Its API and version may be unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


#: `RequestHeader(…)` without the call of a Python function, for what every request brings
_new_header = tuple.__new__


def decode_request_header(frame: memoryview) -> RequestHeader:
    """The header of a request, of whatever API; ProtocolError where there is none."""
    try:
        api_key, version, correlation_id, length = _unpack_request_header(frame)
    except struct.error as e:
        raise ProtocolError(f"request of {len(frame)} bytes") from e
    client_id = None
    offset = _REQUEST_HEADER_SIZE
    if length >= 0:
        offset += length
        # Replacing what is no UTF-8, as Kafka does: a name for logs is no reason to turn a client away.
        client_id = frame[_REQUEST_HEADER_SIZE:offset].tobytes().decode("utf-8", "replace")
    elif length != -1:
        raise ProtocolError(f"client id of {length} bytes")
    if version >= _FLEXIBLE_FROM.get(api_key, _NEVER):
        offset = _skip_header_tags(frame, offset)
    if offset > len(frame):
        raise ProtocolError("request header is truncated")
    return _new_header(RequestHeader, (api_key, version, correlation_id, client_id, offset))


def _skip_header_tags(frame: memoryview, offset: int) -> int:
    try:
        return offset + 1 if frame[offset] == 0 else skip_tags(frame, offset)
    except IndexError as e:
        raise ProtocolError("header is truncated") from e


def response_writer(
    api: Api[Any, ResponseT], version: int, elements: int | None = None
) -> Callable[[int, ResponseT], list[Part]]:
    """A function of (correlation id, message) that gives a response as it goes out, its size first.

    Record batches are parts of their own. With `elements` the function raises LargeMessage for a response
    that has more.
    """
    encode = (
        api.response_encoder(version) if elements is None else api.bounded_response_encoder(version, elements)
    )
    if version >= api.flexible_from and api.key != _API_VERSIONS_KEY:
        header_size, pack = 5, _RESPONSE_V1.pack
        tail: tuple[int, ...] = (0,)
    else:
        header_size, pack, tail = 4, _RESPONSE_V0.pack, ()

    def write(correlation_id: int, message: ResponseT) -> list[Part]:
        parts = encode(message)
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        header = pack(size + header_size, correlation_id, *tail)
        parts[0] = header + parts[0]  # type: ignore[operator]  # the first part is always bytes of ours
        return parts

    return write


def with_header(api: Api[Any, Any], version: int) -> Callable[[int, list[Part]], list[Part]]:
    """A function of (correlation id, parts of an encoded body) that gives a response as it goes out."""
    is_flexible = version >= api.flexible_from and api.key != _API_VERSIONS_KEY

    def write(correlation_id: int, parts: list[Part]) -> list[Part]:
        size = sum(map(len, parts))
        if is_flexible:
            return [_RESPONSE_V1.pack(size + 5, correlation_id, 0), *parts]
        return [_RESPONSE_V0.pack(size + 4, correlation_id), *parts]

    return write


def sliced_response_writer(
    api: Api[Any, ResponseT], version: int
) -> Callable[[int, ResponseT], Generator[None, None, list[Part]]]:
    """As `response_writer`; the function is a generator that yields after some elements.

    A large response is in pieces, which are sent one by one: to join all of it would take long.
    """
    encode, head = api.sliced_response_encoder(version), with_header(api, version)

    def write(correlation_id: int, message: ResponseT) -> Generator[None, None, list[Part]]:
        return (yield from _in_pieces(head(correlation_id, (yield from encode(message)))))

    return write


def _in_pieces(parts: Iterable[Part]) -> Generator[None, None, list[Part]]:
    """The bytes of parts of some elements each, in pieces of at least `_PIECE_BYTES`."""
    pieces: list[Part] = []
    some: list[Buffer] = []
    size = 0
    for part in parts:
        if isinstance(part, FileRange):
            pieces += [b"".join(some), part]
            some, size = [], 0
            continue
        some.append(part)
        size += len(part)
        if size >= _PIECE_BYTES:
            pieces.append(b"".join(some))
            some, size = [], 0
            yield
    return [*pieces, b"".join(some)]


def response_skeleton(
    api: Api[Any, ResponseT], version: int, message: Callable[[int, int, int], ResponseT]
) -> Skeleton:
    """A function of (correlation id, three numbers) that gives `message(*numbers)` as it goes out.

    For a response that is sent again and again with nothing new but three fields of 32 or 64 bits, in the
    order in which they are encoded: it is encoded here, and from then on only the numbers are written.
    """
    write = response_writer(api, version)

    def encoded(*numbers: int) -> bytes:
        return b"".join(write(0, message(*numbers)))  # type: ignore[arg-type]  # nothing in it is a file's

    zeros = encoded(0, 0, 0)
    layout, constants, position = ">4si", [], 8
    for ones in (encoded(-1, 0, 0), encoded(0, -1, 0), encoded(0, 0, -1)):
        changed = [at for at, pair in enumerate(zip(zeros, ones, strict=True)) if pair[0] != pair[1]]
        start, end = changed[0], changed[-1] + 1
        assert start >= position and ones[start:end] == b"\xff" * (end - start), "a field each, in order"
        layout += f"{start - position}s{_NUMBER_FORMATS[end - start]}"
        constants.append(zeros[position:start])
        position = end
    head, (before_a, before_b, before_c), tail = zeros[:4], constants, zeros[position:]
    pack = struct.Struct(f"{layout}{len(tail)}s").pack

    def fill(correlation_id: int, numbers: tuple[int, int, int]) -> tuple[bytes]:
        a, b, c = numbers
        return (pack(head, correlation_id, before_a, a, before_b, b, before_c, c, tail),)

    return fill


def encode_response(
    api: Api[Any, ResponseT], version: int, correlation_id: int, message: ResponseT
) -> list[Part]:
    """One response as it goes out; see `response_writer`."""
    return response_writer(api, version)(correlation_id, message)


def encode_request(
    api: Api[RequestT, Any], version: int, correlation_id: int, client_id: str | None, message: RequestT
) -> list[Part]:
    """One request as it goes out; see `request_writer`."""
    return request_writer(api, version, client_id)(correlation_id, message)


def request_writer(
    api: Api[RequestT, Any], version: int, client_id: str | None
) -> Callable[[int, RequestT], list[Part]]:
    """A function of (correlation id, message) that gives a request as it goes out, its size first."""
    encode = api.request_encoder(version)
    header = _request_header(api, version, client_id)

    def write(correlation_id: int, message: RequestT) -> list[Part]:
        parts = encode(message)
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        parts[0] = header(correlation_id, size) + parts[0]  # type: ignore[operator]  # as in `response_writer`
        return parts

    return write


def encode_request_header(
    api: Api[Any, Any], version: int, correlation_id: int, client_id: str | None, body_size: int
) -> bytes:
    """The size and the header of a request whose body has `body_size` bytes."""
    return _request_header(api, version, client_id)(correlation_id, body_size)


def _request_header(api: Api[Any, Any], version: int, client_id: str | None) -> Callable[[int, int], bytes]:
    """A function of (correlation id, size of the body) that gives the size and the header of a request."""
    name = b"" if client_id is None else client_id.encode()
    tail = name + b"\0" if version >= api.flexible_from else name
    length = -1 if client_id is None else len(name)
    key, pack, own_size = api.key, _REQUEST_PREFIX.pack, _REQUEST_HEADER_SIZE + len(tail)

    def header(correlation_id: int, body_size: int) -> bytes:
        return pack(own_size + body_size, key, version, correlation_id, length) + tail

    return header


def response_correlation_id(frame: memoryview) -> int:
    """The correlation id of a response, which is that of its request."""
    if len(frame) < _CORRELATION.size:
        raise ProtocolError(f"response of {len(frame)} bytes")
    (correlation_id,) = _CORRELATION.unpack_from(frame)
    return int(correlation_id)


def decode_response(api: Api[Any, ResponseT], version: int, frame: memoryview) -> ResponseT:
    """The body of a response to a request of `api` and `version`."""
    return response_reader(api, version)(frame)


def response_reader(api: Api[Any, ResponseT], version: int) -> Callable[[memoryview], ResponseT]:
    """A function from the frame of a response to its body."""
    decode, start = api.response_decoder(version), _CORRELATION.size
    if version < api.flexible_from or api.key == _API_VERSIONS_KEY:
        return lambda frame: decode(frame, start)
    return lambda frame: decode(frame, _skip_header_tags(frame, start))


def response_body_offset(api: Api[Any, Any], version: int, frame: memoryview) -> int:
    """Where the body of such a response starts, behind its header."""
    if version >= api.flexible_from and api.key != _API_VERSIONS_KEY:
        return _skip_header_tags(frame, _CORRELATION.size)
    return _CORRELATION.size
