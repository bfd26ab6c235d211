"""An operation: one request, with labels instead of values that each broker chooses.

A label has the type of the value that it stands for, so that a request is an ordinary message. Names start
with `~`; the functions here make topic ids, producer ids, session ids and member ids.

Invariant: an operation never changes, so that any subset of a seed's operations can be sent again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.wire.api import Api
from penstock.wire.schema import Struct

__all__ = [
    "NAME_MARK",
    "Operation",
    "epoch_label",
    "member_label",
    "producer_label",
    "session_label",
    "topic_id_label",
    "transaction_epoch_label",
    "transactional_label",
]

#: starts the name of every topic and group
NAME_MARK: Final = "~"
#: labels of numbers are far from every number that a new broker gives out
_PRODUCERS_FROM: Final = 7_000_000_000
_SESSIONS_FROM: Final = 1_500_000_000
_EPOCHS_FROM: Final = 1_900_000_000
#: epochs of producers have 16 bits
_TRANSACTION_EPOCHS_FROM: Final = 29_000
_TRANSACTIONAL_FROM: Final = 7_500_000_000


def topic_id_label(name: str, incarnation: int) -> bytes:
    """The label of the id of the `incarnation`-th topic with that name."""
    return b"~topicid" + hashlib.blake2b(f"{name}/{incarnation}".encode(), digest_size=8).digest()


def producer_label(number: int) -> int:
    return _PRODUCERS_FROM + number


def transactional_label(number: int) -> int:
    """The label of the producer id of a transactional id."""
    return _TRANSACTIONAL_FROM + number


def transaction_epoch_label(number: int) -> int:
    """The label of the epoch that the producer of a transactional id was last given."""
    return _TRANSACTION_EPOCHS_FROM + number


def session_label(number: int) -> int:
    return _SESSIONS_FROM + number


def member_label(number: int) -> str:
    return f"~member-{number}"


def epoch_label(member: str) -> int:
    """The label of the epoch, or generation, that the member was last given."""
    return _EPOCHS_FROM + int(member.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Operation:
    """See the module."""

    kind: str
    api: Api[Any, Any]
    version: int
    request: Struct
    #: the label that a value of the response gets: a producer id, a session id or a member id
    binds: int | str | None = None
    #: the label that the producer epoch of the response gets
    binds_epoch: int | None = None
    #: the label of the group member that sends it
    member: str | None = None
    #: whether it acknowledges the member's last assignment (KIP-848)
    acknowledges: bool = False
    #: labels of the topics that the request creates
    creates: dict[str, bytes] = field(default_factory=dict)
    #: changes bytes of the encoded body
    mangle: int | None = None
    #: whether sending it again changes nothing
    is_read: bool = False
    answered: bool = True

    def __str__(self) -> str:
        mangled = "" if self.mangle is None else f" mangled with {self.mangle}"
        return f"{self.api.name} v{self.version}{mangled} {_shown(self.request)}"


def _shown(value: Any) -> str:
    """A message without the fields that have their default values."""
    if isinstance(value, Struct):
        plain = type(value)()
        fields = {f.name: getattr(value, f.name) for f in type(value).fields}
        changed = {name: given for name, given in fields.items() if given != getattr(plain, name)}
        return "{" + ", ".join(f"{name}={_shown(given)}" for name, given in changed.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(bytes(value) if isinstance(value, memoryview) else value)
