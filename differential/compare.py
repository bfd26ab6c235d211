"""The differences between two plain answers, by path."""

from __future__ import annotations

from collections.abc import Iterator
from re import compile
from typing import Final, NamedTuple

from differential.normalise import Plain

__all__ = ["ABSENT", "Difference", "differences"]


_INDEX: Final = compile(r"\[[^]]*\]")
#: the fields that identify the elements of a list
_KEYS: Final = (
    "name",
    "topic_id",
    "topic",
    "partition_index",
    "index",
    "partition",
    "group_id",
    "member_id",
)
ABSENT: Final = "absent"


class Difference(NamedTuple):
    """One field in which the answers differ; `path` is `topics[0].partitions[1].error_code`."""

    path: str
    ours: Plain
    theirs: Plain

    @property
    def fields(self) -> str:
        """The path without indexes: `topics.partitions.error_code`."""
        return _INDEX.sub("", self.path)

    def __str__(self) -> str:
        return f"{self.path or 'answer'}: Penstock {self.ours!r}, Apache Kafka {self.theirs!r}"


def differences(ours: Plain, theirs: Plain) -> list[Difference]:
    return list(_differences("", ours, theirs))


def _differences(path: str, ours: Plain, theirs: Plain) -> Iterator[Difference]:
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name, value in ours.items():
            yield from _differences(f"{path}.{name}" if path else name, value, theirs[name])
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield from _list_differences(path, ours, theirs)
    elif ours != theirs:
        yield Difference(path, ours, theirs)


def _list_differences(path: str, ours: list[Plain], theirs: list[Plain]) -> Iterator[Difference]:
    """Compares elements by their identifying fields, if these are unique, else by position."""
    our_keys, their_keys = _keys(ours), _keys(theirs)
    if our_keys is None or their_keys is None:
        for index, pair in enumerate(zip(ours, theirs, strict=False)):
            yield from _differences(f"{path}[{index}]", *pair)
        if len(ours) != len(theirs):
            shorter = min(len(ours), len(theirs))
            yield Difference(f"{path}[{shorter}:]", ours[shorter:], theirs[shorter:])
        return
    by_key = dict(zip(their_keys, theirs, strict=True))
    for key, value in zip(our_keys, ours, strict=True):
        yield from _differences(f"{path}[{key}]", value, by_key.pop(key, ABSENT))
    for key, value in by_key.items():
        yield Difference(f"{path}[{key}]", ABSENT, value)


def _keys(elements: list[Plain]) -> list[str] | None:
    """Unique keys of the elements, or None if they have none."""
    for field in _KEYS:
        if elements and all(isinstance(e, dict) and e.get(field) not in (None, "") for e in elements):
            found = [str(element[field]) for element in elements]
            if len(set(found)) == len(found):
                return found
    return None
