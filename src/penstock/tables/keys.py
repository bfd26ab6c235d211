"""Keys of messages as the keys of a table.

A key of a registry has the id of its writer's schema in its bytes, so equal keys have several forms. A table
knows a key by its value: rows are placed, replaced and deleted by the name that is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from penstock.values.decoding import Decoder

__all__ = ["KeyReader", "ReadKeys", "name_of"]

#: up to which doubles have each whole number
_WHOLE_MAX: Final = 2**53


class ReadKeys(NamedTuple):
    """For each message, the name of its key, and why it has none."""

    #: text is UTF-8; None without a key, or if there is a reason
    names: list[bytes | None]
    reasons: list[str | None]


@dataclass(frozen=True)
class KeyReader:
    """Makes names of the bytes of keys; sent to executors."""

    #: whether keys are the bytes themselves
    is_binary: bool = False
    #: of keys by the schemas of a registry; without one they are text
    decoder: Decoder | None = None

    def read(self, keys: Sequence[bytes | None]) -> ReadKeys:
        if self.is_binary:
            return ReadKeys([*keys], [None] * len(keys))
        read = ReadKeys([], [])
        for key in keys:
            try:
                read.names.append(None if key is None else self._name(key))
                read.reasons.append(None)
            except (ValueError, RecursionError) as error:
                read.names.append(None)
                read.reasons.append(f"the key: {error}")
        return read

    def _name(self, key: bytes) -> bytes:
        if self.decoder is not None:
            return name_of(self.decoder.decode(key).value)
        try:
            key.decode()
        except UnicodeDecodeError as error:
            raise ValueError("it is not UTF-8 text: keys of this table are text") from error
        return key


def name_of(value: Any) -> bytes:
    """The name of a key's value: text as it is, other values as JSON; part of the format of a table.

    Equal values have one name: schemas may order fields in different ways, and write 5 as a long or a double.
    """
    if isinstance(value, str):
        return value.encode()
    return msgspec.json.encode(_plain(value), enc_hook=str, order="deterministic")


def _plain(value: Any) -> Any:
    """A value with one form for each number."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() and abs(value) < _WHOLE_MAX else value
    if isinstance(value, Decimal) and value.is_finite():
        return format(value.normalize(), "f")
    return value
