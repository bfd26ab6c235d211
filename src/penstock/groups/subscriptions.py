"""The subscribed names of members that are topics. A member may name many that are not."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from struct import Struct
from typing import Final

from penstock.metadata.image import TopicImage
from penstock.model.errors import InvalidRequest

__all__ = ["NAMES_MAX", "check_names", "count_names", "existing", "hash_of", "known_names", "names_in"]

#: The most names that a member subscribes to, and their bytes: they are one record, of at most 1 MB. A log
#: that refuses the record would fail the requests of all groups of its shard.
NAMES_MAX: Final = 20_000
NAME_BYTES_MAX: Final = 512 * 1024
#: A search in the sorted names of a member costs as much as so many steps through them.
_SEARCH: Final = 16
#: a topic in a hash: its id, and the number of its partitions
_HASHED: Final = Struct(">16sI")
#: the names of nearly all members
_FEW: Final = 1000


def existing(topics: Mapping[str, object], named: Mapping[str, object]) -> set[str]:
    """The names that are topics. It takes as long as the smaller of the two has elements."""
    return topics.keys() & named.keys()


def hash_of(topics: Sequence[TopicImage]) -> int:
    """A hash of the ids and partition counts of topics; 0 without topics."""
    if not topics:
        return 0
    pack = _HASHED.pack
    hashed = b"".join([pack(topic.id, len(topic.partitions)) for topic in topics])
    return int.from_bytes(hashlib.blake2b(hashed, digest_size=8).digest(), "big", signed=True)


def names_in(names: Sequence[str], known: Collection[str]) -> list[str]:
    """Those of the sorted `names` of a member that are in `known`, the existing names of its group."""
    if len(known) * _SEARCH >= len(names):
        return [name for name in names if name in known]
    found = []
    for name in known:
        at = bisect_left(names, name)
        if at < len(names) and names[at] == name:
            found.append(name)
    return sorted(found)


def known_names(names: Sequence[str], topics: Mapping[str, object], named: Mapping[str, object]) -> list[str]:
    """The names of one member that are topics; `named` are those of its group."""
    if len(names) <= _FEW:
        return [name for name in names if name in topics]
    return names_in(names, existing(topics, named))


def count_names(counts: Counter[str], names: Collection[str], step: int) -> None:
    """Add (`step` 1) or remove (-1) the names of a member."""
    if step > 0:
        counts.update(names)
        return
    for name in names:
        left = counts[name] - 1
        if left:
            counts[name] = left
        else:
            del counts[name]


def check_names(names: Collection[str] | None) -> None:
    """Refuse a member with too many names, or with too long ones. A regular expression is an alternative."""
    if not names:
        return
    if len(names) > NAMES_MAX:
        raise InvalidRequest(f"SubscribedTopicNames can't have more than {NAMES_MAX} names.")
    if sum(map(len, map(str.encode, names))) > NAME_BYTES_MAX:
        raise InvalidRequest(f"SubscribedTopicNames can't have more than {NAME_BYTES_MAX} bytes.")
