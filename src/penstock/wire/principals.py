"""The principal of a forwarded request in an Envelope: Kafka's default principal, version 0."""

from __future__ import annotations

from functools import cache
from struct import Struct as Packer
from typing import Final

from penstock.model.errors import ProtocolError
from penstock.wire.compiler import Decoder, Encoder, decoder, encoder
from penstock.wire.schema import Struct, boolean, string

__all__ = ["Principal", "decode_principal", "encode_principal"]

_VERSION: Final = 0
_PREFIX: Final = Packer(">h")


class Principal(Struct):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


@cache
def _codec() -> tuple[Encoder[Principal], Decoder[Principal]]:
    """Compiled on first use: a broker that forwards nothing needs neither."""
    return encoder(Principal, _VERSION, flexible=True), decoder(Principal, _VERSION, flexible=True)


def encode_principal(principal: Principal) -> bytes:
    encode, _ = _codec()
    return _PREFIX.pack(_VERSION) + b"".join(encode(principal))  # type: ignore[arg-type]  # bytes of ours


def decode_principal(data: bytes) -> Principal:
    """The inverse of `encode_principal`; ProtocolError where the bytes are none."""
    _, decode = _codec()
    if len(data) < _PREFIX.size or _PREFIX.unpack_from(data)[0] != _VERSION:
        raise ProtocolError(f"principal of {len(data)} bytes, or of a version other than {_VERSION}")
    return decode(memoryview(data), _PREFIX.size)
