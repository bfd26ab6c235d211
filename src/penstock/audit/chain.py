"""A chain of hashes over audit events: each event carries a number and the hash of the one before.

An event gets the fields `chain`, `seq`, `prev` and `hash`. `hash` is SHA-256 over the canonical JSON of all
other fields, or HMAC-SHA-256 with a key. A chain begins with `seq` 1 at each start of a broker. Its first
event has `previous`, the last known event of the chain before, and `hash_key`, which names the key.

Invariant: an event that is changed, removed, inserted or moved inside a chain breaks a hash, a link or the
order of numbers. Without the key, the rest of the chain cannot be made anew.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["NO_HASH", "Chain", "Head", "canonical", "hash_of", "key_name", "parse_head"]

#: the `prev` of the first event
NO_HASH: Final = "0" * 64
_KEY_NAME: Final = b"penstock audit key"


class Head(NamedTuple):
    """The last event of a chain."""

    chain: str
    seq: int
    hash: str

    @property
    def stream(self) -> str:
        """The broker and the sink of the chain: all its chains continue each other."""
        return self.chain.rpartition("/")[0]


def canonical(event: Mapping[str, Any]) -> bytes:
    """The bytes of an event that are hashed: JSON with sorted names, in ASCII, without spaces."""
    return json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str).encode()


def hash_of(key: bytes, content: bytes) -> str:
    """HMAC with a key; a plain hash if the key is empty."""
    return hmac.new(key, content, "sha256").hexdigest() if key else hashlib.sha256(content).hexdigest()


def key_name(key: bytes) -> str:
    """A name of a key that says nothing about it; empty for no key."""
    return hmac.new(key, _KEY_NAME, "sha256").hexdigest()[:16] if key else ""


def parse_head(fields: object) -> Head | None:
    """A head in the form of `Head._asdict`; None if it is no head."""
    if not isinstance(fields, dict):
        return None
    chain, seq, hash_ = fields.get("chain"), fields.get("seq"), fields.get("hash")
    if not isinstance(chain, str) or not isinstance(hash_, str) or type(seq) is not int or seq < 1:
        return None
    return Head(chain, seq, hash_)


class Chain:
    """Seals events one after the other."""

    def __init__(self, name: str, key: bytes = b"", previous: Head | None = None) -> None:
        """`name` is used once: the stream, a slash, and something unique. `previous` is the chain before."""
        self._name = name
        self._key = key
        self._previous = previous
        self._seq = 0
        self._hash = NO_HASH

    @property
    def head(self) -> Head | None:
        """The last sealed event; None before the first one."""
        return Head(self._name, self._seq, self._hash) if self._seq else None

    def seal(self, event: Mapping[str, Any]) -> bytes:
        """The event as a line of JSON, linked to the one before."""
        sealed = {**event, "chain": self._name, "seq": self._seq + 1, "prev": self._hash}
        if not self._seq:
            sealed["previous"] = None if self._previous is None else self._previous._asdict()
            sealed["hash_key"] = key_name(self._key)
        self._hash = hash_of(self._key, canonical(sealed))
        self._seq += 1
        return canonical({**sealed, "hash": self._hash})

    def rewind(self, head: Head | None) -> None:
        """Forget the events after `head`: they were not written, and never will be."""
        assert head is None or head.chain == self._name
        self._seq, self._hash = (0, NO_HASH) if head is None else (head.seq, head.hash)
