"""The principal of a forwarded request in an Envelope: Kafka's default principal, version 0.

A tagged field of Penstock carries the groups of the principal's token, because ACLs of roles apply to them.
Other implementations skip it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from struct import Struct as Packer
from typing import Final

from penstock.model.errors import ProtocolError
from penstock.security.principal import Principal
from penstock.wire.compiler import Decoder, Encoder, decoder, encoder
from penstock.wire.schema import OWN_TAGS, Struct, array, boolean, string

__all__ = ["decode_principal", "encode_principal"]

_VERSION: Final = 0
_PREFIX: Final = Packer(">h")


class DefaultPrincipalData(Struct):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
    groups: list[str] = array(string(), tag=OWN_TAGS)


@cache
def _codec() -> tuple[Encoder[DefaultPrincipalData], Decoder[DefaultPrincipalData]]:
    """Compiled on first use: a broker that forwards nothing needs neither."""
    return (
        encoder(DefaultPrincipalData, _VERSION, flexible=True),
        decoder(DefaultPrincipalData, _VERSION, flexible=True),
    )


def encode_principal(principal: Principal, groups: Sequence[str] = ()) -> bytes:
    encode, _ = _codec()
    data = DefaultPrincipalData(type=principal.type, name=principal.name, groups=list(groups))
    return _PREFIX.pack(_VERSION) + b"".join(encode(data))  # type: ignore[arg-type]  # bytes of ours


def decode_principal(data: bytes) -> tuple[Principal, tuple[str, ...]]:
    """The principal and the groups of its token; ProtocolError if the bytes are malformed."""
    _, decode = _codec()
    if len(data) < _PREFIX.size or _PREFIX.unpack_from(data)[0] != _VERSION:
        raise ProtocolError(f"principal of {len(data)} bytes, or of a version other than {_VERSION}")
    found = decode(memoryview(data), _PREFIX.size)
    return Principal(found.type, found.name), tuple(found.groups)
