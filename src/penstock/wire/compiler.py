"""Compiles tables into codecs: one function per (structure, version, flexible or not, direction).

A message becomes one straight function with everything nested in it written out: a run of fixed-size fields
together with the length that follows it is one `struct` call. Compiling takes milliseconds, so it is done at
the first use, never at import, and the codec is kept. The two generators are in
`penstock.wire.decoding` and `penstock.wire.encoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import TypeAlias, TypeVar, cast

from penstock.ports import Buffer, FileRange
from penstock.wire.decoding import compile_bounded_decoder, compile_decoder, compile_sliced_decoder
from penstock.wire.encoding import compile_bounded_encoder, compile_encoder, compile_sliced_encoder
from penstock.wire.schema import Struct

__all__ = [
    "Decoder",
    "Encoder",
    "Part",
    "SlicedDecoder",
    "SlicedEncoder",
    "bounded_decoder",
    "bounded_encoder",
    "decoder",
    "encoder",
    "sliced_decoder",
    "sliced_encoder",
]

S = TypeVar("S", bound=Struct)
#: The parts of an encoded message: encoded bytes, and record batches unchanged.
Part: TypeAlias = Buffer | FileRange
#: `decode(buffer, offset)`: the message at `offset`; ProtocolError and nothing else where there is none.
Decoder: TypeAlias = Callable[[memoryview, int], S]
Encoder: TypeAlias = Callable[[S], list[Part]]
#: the same, as generators that yield after some elements; a decoder first yields the message without fields
SlicedDecoder: TypeAlias = Callable[[bytes | bytearray | memoryview, int], Generator[S | None, None, S]]
SlicedEncoder: TypeAlias = Callable[[S], Generator[None, None, list[Part]]]

_compiled_decoder = cache(compile_decoder)
_compiled_encoder = cache(compile_encoder)
_compiled_bounded_decoder = cache(compile_bounded_decoder)
_compiled_bounded_encoder = cache(compile_bounded_encoder)
_compiled_sliced_decoder = cache(compile_sliced_decoder)
_compiled_sliced_encoder = cache(compile_sliced_encoder)


def decoder(cls: type[S], version: int, flexible: bool, *, exact: bool = False) -> Decoder[S]:
    """A decoder that ignores bytes after the message, as Kafka does, unless it has to be `exact`."""
    return cast("Decoder[S]", _compiled_decoder(cls, version, flexible, exact))


def encoder(cls: type[S], version: int, flexible: bool) -> Encoder[S]:
    return cast("Encoder[S]", _compiled_encoder(cls, version, flexible))


def bounded_decoder(cls: type[S], version: int, flexible: bool, elements: int) -> Decoder[S]:
    """A decoder that raises LargeMessage for a message of more than `elements`, or of many bytes."""
    return cast("Decoder[S]", _compiled_bounded_decoder(cls, version, flexible, elements))


def bounded_encoder(cls: type[S], version: int, flexible: bool, elements: int) -> Encoder[S]:
    """An encoder that raises LargeMessage for a message of more than `elements`."""
    return cast("Encoder[S]", _compiled_bounded_encoder(cls, version, flexible, elements))


def sliced_decoder(cls: type[S], version: int, flexible: bool, *, copies: bool = True) -> SlicedDecoder[S]:
    """A decoder in slices; without `copies` it reads the buffer as it is, which is slower."""
    return cast("SlicedDecoder[S]", _compiled_sliced_decoder(cls, version, flexible, copies))


def sliced_encoder(cls: type[S], version: int, flexible: bool) -> SlicedEncoder[S]:
    return cast("SlicedEncoder[S]", _compiled_sliced_encoder(cls, version, flexible))
