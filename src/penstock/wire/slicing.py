"""Sizes from which on a message is decoded and encoded in slices, and the signal that it is.

Each message has up to three codecs in a direction. The plain one takes messages of any size up to
`MAX_ELEMENTS`: for clients, and for tools. The bounded one raises `LargeMessage` instead of looping over a
message with more than some elements, or with many bytes. The sliced one is a generator: it yields after every
`STEP` elements, so that its driver can let the event loop go on.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

__all__ = [
    "FIXED_STEP",
    "LARGE_FRAME",
    "MAX_ELEMENTS",
    "SMALL_BYTES",
    "SMALL_ELEMENTS",
    "SMALL_RESPONSE",
    "STEP",
    "TAGS_MAX",
    "LargeMessage",
    "exhausted",
]

T = TypeVar("T")
#: the most elements of all arrays of a message together: an object costs far more memory than the two bytes
#: that may stand for it
MAX_ELEMENTS: Final = 1 << 20
#: the most elements and bytes of a request that is decoded and handled at once; an element takes 10 to 20 µs
SMALL_ELEMENTS: Final = 200
SMALL_BYTES: Final = 64 << 10
#: the largest frame whose batches of records are appended at once; a megabyte takes a millisecond or more
LARGE_FRAME: Final = 4 << 20
#: the most elements of a response that is encoded at once; an element takes a microsecond or two
SMALL_RESPONSE: Final = 1000
#: elements between two yields of a sliced codec: structures, and values of a fixed size
STEP: Final = 64
FIXED_STEP: Final = 4096
#: the most tagged fields of one structure; Kafka's messages have at most a handful
TAGS_MAX: Final = 64


class LargeMessage(Exception):
    """A bounded codec found a message that has to be decoded or encoded in slices."""


def exhausted(steps: Generator[object, None, T]) -> T:
    """The result of all steps, computed at once."""
    while True:
        try:
            next(steps)
        except StopIteration as e:
            result: T = e.value
            return result
