"""Compiles tables into codecs: one function per (structure, version, flexible or not, direction).

A message becomes one straight function with everything nested in it written out: a run of fixed-size fields
together with the length that follows it is one `struct` call. Compiling takes milliseconds, so it is done at
the first use, never at import, and the codec is kept. The two generators are in
`penstock.wire.decoding` and `penstock.wire.encoding`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias, TypeVar, cast

from penstock.ports import Buffer, FileRange
from penstock.wire.decoding import compile_decoder
from penstock.wire.encoding import compile_encoder
from penstock.wire.schema import Struct

__all__ = ["Decoder", "Encoder", "Part", "decoder", "encoder"]

S = TypeVar("S", bound=Struct)
#: The parts of an encoded message: encoded bytes, and record batches unchanged.
Part: TypeAlias = Buffer | FileRange
#: `decode(buffer, offset)`: the message at `offset`; ProtocolError and nothing else where there is none.
Decoder: TypeAlias = Callable[[memoryview, int], S]
Encoder: TypeAlias = Callable[[S], list[Part]]

_compiled_decoder = cache(compile_decoder)
_compiled_encoder = cache(compile_encoder)


def decoder(cls: type[S], version: int, flexible: bool, *, exact: bool = False) -> Decoder[S]:
    """A decoder that ignores bytes after the message, as Kafka does, unless it has to be `exact`."""
    return cast("Decoder[S]", _compiled_decoder(cls, version, flexible, exact))


def encoder(cls: type[S], version: int, flexible: bool) -> Encoder[S]:
    return cast("Encoder[S]", _compiled_encoder(cls, version, flexible))
