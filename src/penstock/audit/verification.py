"""Checks chains of audit events: finds events that were changed, removed, moved or added.

Detected: a changed event, a missing event between two others, a moved or repeated event, missing events at
the end of a chain that a later chain or a known head refers to, and missing files at the beginning whose
deletion no event reports. Not detected without a head from elsewhere: the removal of everything after some
event, if no later event exists. Not detected without a key: a chain that was computed anew from the changed
event on.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.audit.chain import NO_HASH, Head, canonical, hash_of, key_name, parse_head
from penstock.audit.internal_events import FILE_DELETED

__all__ = ["Entry", "Finding", "Verifier", "read_entry"]


#: the hashes of a chain that are kept: repeated events and the links of chains are near the end
_HASHES_MAX = 200_000


class Finding(NamedTuple):
    """Something that is wrong, and where."""

    place: str
    text: str


class Entry(NamedTuple):
    """What the check needs to know about one event."""

    place: str
    head: Head
    prev: str
    #: the hash is that of the content
    is_intact: bool
    previous: Head | None
    has_previous: bool
    hash_key: str | None
    #: the last event of a file that the broker has deleted
    deleted: Head | None
    #: events that limits and full queues have dropped
    dropped: int


def read_entry(place: str, line: bytes, key: bytes) -> Entry | Finding:
    """The entry of one event, or why it is none."""
    try:
        event = json.loads(line, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return Finding(place, "is not an audit event: changed, or cut off")
    head = parse_head(event)
    if head is None or not isinstance(event.get("prev"), str):
        return Finding(place, "is an event without a chain: added, or written by an earlier version")
    content = canonical({name: value for name, value in event.items() if name != "hash"})
    dropped = event.get("dropped")
    return Entry(
        place,
        head,
        event["prev"],
        hmac.compare_digest(hash_of(key, content).encode(), head.hash.encode()),
        parse_head(event.get("previous")),
        event.get("previous") is not None,
        event.get("hash_key"),
        parse_head(event.get("last")) if event.get("event") == FILE_DELETED else None,
        dropped if type(dropped) is int else 0,
    )


def _distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are distinct: readers of JSON disagree about which of two equal names counts."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} appears twice")
        found[name] = value
    return found


class Verifier:
    """Takes the entries in their order. `findings` has what is wrong, in the order of discovery."""

    def __init__(
        self,
        key: bytes = b"",
        *,
        repeats: bool = False,
        may_begin_late: bool = False,
        known: Iterable[Head] = (),
    ) -> None:
        """With `repeats`, an event may be there twice: after a failure it is sent again.

        With `may_begin_late`, events before the first one may be missing: retention has deleted them. `known`
        are heads from elsewhere, which must be among the events.
        """
        self._known = {(head.chain, head.seq): head for head in known}
        self._key_name = key_name(key)
        self._repeats = repeats
        self._may_begin_late = may_begin_late
        self.events = 0
        self.dropped = 0
        self.findings: list[Finding] = []
        #: the last event of each chain, in the order of their beginnings
        self.heads: dict[str, Head] = {}
        #: by chain and number: the hashes, to recognise repeated events and heads
        self._hashes: dict[str, dict[int, str]] = {}
        #: by stream: the first event, and the event that it should follow
        self._first: dict[str, tuple[Entry, Head | None]] = {}
        #: by stream: the last event of the files that the broker has deleted
        self._deleted: dict[str, Head] = {}

    def take(self, entry: Entry | Finding) -> None:
        if isinstance(entry, Finding):
            self.findings.append(entry)
            return
        known = self._hashes.setdefault(entry.head.chain, {})
        if self._repeats and entry.is_intact and known.get(entry.head.seq) == entry.head.hash:
            return
        self.events += 1
        self.dropped += entry.dropped
        self._check(entry)
        known[entry.head.seq] = entry.head.hash
        if len(known) > _HASHES_MAX:
            for seq in list(known)[: _HASHES_MAX // 2]:
                del known[seq]
        self._meet(entry)
        last = self.heads.get(entry.head.chain)
        if last is None or entry.head.seq > last.seq:
            self.heads[entry.head.chain] = entry.head
        if entry.deleted is not None:
            self._deleted[entry.head.stream] = entry.deleted

    def _meet(self, entry: Entry) -> None:
        """Compare an event with the head that is known from elsewhere, if it is one."""
        head = self._known.pop((entry.head.chain, entry.head.seq), None)
        if head is not None and head.hash != entry.head.hash:
            self._found(entry, f"{_event(head)} is another one than the known head: replaced")

    def end(self) -> None:
        """All events were taken."""
        for stream, (entry, follows) in self._first.items():
            if follows is not None and not self._may_begin_late and self._deleted.get(stream) != follows:
                text = f"is the first event, but {_event(follows)} and those before it are missing"
                self.findings.append(Finding(entry.place, text))
        for head in self._known.values():
            last = self.heads.get(head.chain)
            end = "the chain is missing" if last is None else f"the last one is {last.seq}"
            self.findings.append(Finding("end", f"{_event(head)} is known, but missing: {end}"))

    def _check(self, entry: Entry) -> None:
        """Note what is wrong with an event, by the one before it."""
        head, last = entry.head, self.heads.get(entry.head.chain)
        if entry.hash_key is not None and entry.hash_key != self._key_name:
            made = "a key" if entry.hash_key else "no key"
            self._found(entry, f"begins a chain that was made with {made}: give the right key")
            return
        if not entry.is_intact:
            self._found(entry, f"{_event(head)} was changed, or the key is wrong")
        if last is None:
            self._check_first(entry)
        elif head.seq <= last.seq:
            self._found(entry, f"{_event(head)} comes after {last.seq}: moved, repeated or added")
        elif head.seq > last.seq + 1:
            self._found(entry, f"events {last.seq + 1} to {head.seq - 1} of {head.chain} are missing before")
        elif entry.prev != last.hash:
            self._found(entry, f"{_event(head)} does not follow the event before it: one was replaced")

    def _check_first(self, entry: Entry) -> None:
        head = entry.head
        before: Head | None = None
        if head.seq > 1:
            before = Head(head.chain, head.seq - 1, entry.prev)
        elif entry.prev != NO_HASH:
            self._found(entry, f"{_event(head)} is the first one, but follows another: replaced")
        elif entry.has_previous:
            before = entry.previous
        if head.stream not in self._first:
            self._first[head.stream] = entry, before
            return
        if head.seq > 1:
            self._found(entry, f"events 1 to {head.seq - 1} of {head.chain} are missing before it")
        elif before is None:
            text = "begins a chain that does not continue the one before: the broker had lost its head"
            self._found(entry, text)
        else:
            self._check_link(entry, before)

    def _check_link(self, entry: Entry, before: Head) -> None:
        """A chain names the last event of the one before, as far as the broker knew it."""
        found, last = self._hashes.get(before.chain, {}).get(before.seq), self.heads.get(before.chain)
        if found is None:
            rest = "none of them" if last is None else f"only {last.seq}"
            self._found(entry, f"begins after {_event(before)}, but there is {rest}: the end is missing")
        elif found != before.hash:
            self._found(entry, f"begins after another {_event(before)}: replaced")

    def _found(self, entry: Entry, text: str) -> None:
        self.findings.append(Finding(entry.place, text))

    def summary(self) -> Mapping[str, Any]:
        return {
            "events": self.events,
            "chains": len(self.heads),
            "dropped": self.dropped,
            "findings": len(self.findings),
        }


def _event(head: Head) -> str:
    return f"event {head.seq} of {head.chain}"
