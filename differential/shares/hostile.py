"""Random requests of members and of brokers, sent to two brokers: errors and acquired records must agree.

A seed decides all values. Most of them are right, so that requests get past the first checks; the others are
taken from a list of values that are on a boundary or make no sense. Values of ShareFetch with which Kafka
fails with an internal error (`outcomes.DEVIATIONS`) are left out: its session is of no use afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from differential.shares.scene import RECORDS, Ack, Place, Scene, shown
from differential.shares.state_cases import begin, get, put

__all__ = ["Disagreement", "compare"]

_NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 2, 7, 2**31 - 1)
_LIMITS: Final = {
    "max_bytes": _NUMBERS[4:],
    "min_bytes": _NUMBERS[1:],
    # Fewer than there are is a soft limit: Kafka delivers records again in the batches of the first time.
    "max_records": (-2, -1, 0, 7, 2**31 - 1),
    "batch_size": _NUMBERS[1:],
}
_OFFSETS: Final = (-(2**63), -1, 0, 1, 2, 3, 4, 100, 2**63 - 1)
_TYPES: Final = (-128, -1, 0, 1, 1, 1, 2, 2, 3, 4, 5, 127)
_NAMES: Final = ("", " ", "m", "m" * 36, "m" * 37, "ü", "x" * 300)
_STATES: Final = (0, 2, 4)
#: never that of the session by chance: one broker may need more requests than the other to begin
_EPOCHS: Final = (-(2**31), -2, -1, 0, 10_000, 2**31 - 1)
#: the epoch and the start offset of a state that was read
_KNOWN: Final = re.compile(r"epoch (-?\d+), start (-?\d+)")
_INTERNAL: Final = "UNKNOWN_SERVER_ERROR"
_DISCARDED: Final = "UNKNOWN_TOPIC_OR_PARTITION"
#: of a value that makes no sense
_WRONG: Final = 0.12
#: an offset range of more records is not acknowledged one by one
_TYPES_MAX: Final = 5


class Disagreement(NamedTuple):
    step: int
    request: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"step {self.step}, {self.request}: Penstock {self.ours}, Apache Kafka {self.theirs}"


class _Step(NamedTuple):
    """One request, as it is sent to any scene."""

    text: str
    send: Callable[[Scene], str]
    #: true if the request may close the session
    closes: bool = False


def compare(ours: Place, theirs: Place, seed: int, steps: int, name: str) -> list[Disagreement]:
    """Send the requests of a seed to both; ends with the first disagreement.

    Also ends with an internal error of Kafka, and with an acknowledgement for a share partition that only
    Penstock has discarded: with the last session of the group, Kafka does it with the last connection.
    """
    random = Random(seed)
    sides = [Scene(place, f"{name}-{seed}").hold() for place in (ours, theirs)]
    has_closed = False
    try:
        for number in range(steps):
            step = _draw(random)
            found, expected = (step.send(side) for side in sides)
            has_closed |= step.closes
            if found == expected:
                continue
            if _INTERNAL in expected or (has_closed and _DISCARDED in found):
                return []
            return [Disagreement(number, step.text, found, expected)]
        return []
    finally:
        for side in sides:
            side.close()


def _draw(random: Random) -> _Step:
    kinds = (_acknowledge, _acknowledge, _acknowledge, _fetch, _fetch, _heartbeat, _state)
    return random.choice(kinds)(random)


def _maybe(random: Random, right: Any, wrong: Sequence[Any]) -> Any:
    return random.choice(wrong) if random.random() < _WRONG else right


def _acks(random: Random) -> list[Ack]:
    acks: list[Ack] = []
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        first = _maybe(random, random.randrange(RECORDS), _OFFSETS)
        last = _maybe(random, min(RECORDS - 1, first + random.randrange(2)), _OFFSETS)
        size = last - first + 1
        count = _maybe(random, random.choice((1, size)) if 0 < size <= _TYPES_MAX else 1, (0, 1, 2, 3))
        acks.append((first, last, [_maybe(random, random.choice((1, 2, 3)), _TYPES) for _ in range(count)]))
    return acks


def _session(random: Random, groups: Sequence[str | None]) -> dict[str, Any]:
    """Fields that members and sessions have in common; an epoch is relative to the one of the session."""
    changes: dict[str, Any] = {}
    if random.random() < _WRONG:
        changes["group_id"] = random.choice(groups)
    if random.random() < _WRONG:
        changes["member_id"] = random.choice((None, *_NAMES))
    if random.random() < _WRONG:
        changes["share_session_epoch"] = random.choice(_EPOCHS)
    return changes


def _topics(random: Random, *unknown: bytes) -> Sequence[tuple[bytes | None, Sequence[int]]]:
    topic_id = _maybe(random, None, (None, *unknown))
    return [(topic_id, [_maybe(random, 0, (-1, 1, 9))])]


def _resolved(
    scene: Scene, topics: Sequence[tuple[bytes | None, Sequence[int]]]
) -> list[tuple[bytes, Sequence[int]]]:
    return [(scene.topic_id if topic_id is None else topic_id, indexes) for topic_id, indexes in topics]


def _closes(changes: dict[str, Any]) -> bool:
    return changes.get("share_session_epoch") == -1


def _acknowledge(random: Random) -> _Step:
    acks, changes = _acks(random), _session(random, (None, "", "nobody"))
    topics = _topics(random, bytes(16), bytes(15) + b"\x07")
    if random.random() < _WRONG:
        changes["is_renew_ack"] = True
    version = random.choice((1, 2, 2))
    text = f"ShareAcknowledge v{version} {acks} {changes} {topics}"

    def send(scene: Scene) -> str:
        return shown(scene.acknowledge(*acks, version=version, topics=_resolved(scene, topics), **changes))

    return _Step(text, send, _closes(changes))


def _fetch(random: Random) -> _Step:
    acks, changes, topics = _acks(random), _session(random, (None, "nobody")), _topics(random)
    for field, numbers in _LIMITS.items():
        if random.random() < _WRONG / 2:
            changes[field] = random.choice(numbers)
    if random.random() < _WRONG:
        changes["share_acquire_mode"] = 1
    if random.random() < _WRONG:
        changes |= {"is_renew_ack": True, "max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    version = random.choice((1, 2, 2))
    text = f"ShareFetch v{version} {acks} {changes} {topics}"

    def send(scene: Scene) -> str:
        return shown(scene.fetch(*acks, version=version, topics=_resolved(scene, topics), **changes))

    return _Step(text, send, _closes(changes))


def _heartbeat(random: Random) -> _Step:
    changes: dict[str, Any] = {
        "member_id": random.choice(_NAMES),
        "member_epoch": random.choice((-2, -1, 0, 0, 5, 2**31 - 1)),
        "rack_id": _maybe(random, None, ("", " ", "rack")),
        "subscribed_topic_names": _maybe(random, ["nowhere"], (None, [], [""])),
    }
    # A group of its own: members that come and go must not end the sessions of the others.
    group = _maybe(random, "beats", ("", " "))

    def send(scene: Scene) -> str:
        name = f"{scene.group}-{group}" if group.strip() else group
        return shown(scene.heartbeat(group_id=name, **changes))

    return _Step(f"ShareGroupHeartbeat {group!r} {changes}", send)


def _state(random: Random) -> _Step:
    """A write, after which the state is read; or the beginning of another state.

    A state is not begun twice in the same epoch, which begins it anew in Kafka, and start offsets do not go
    back, which they do in Kafka (docs/internals/shares.md).
    """
    partition = _maybe(random, 0, (-1, 1, 9))
    epochs = {"state_epoch": _maybe(random, 1, (-1, 0, 2)), "partition": partition}
    start = random.choice((-1, 0, 0, 3, 5))
    first = random.randrange(8)
    batch = (first, first + random.randrange(4), random.choice(_STATES), random.randrange(1, 4))
    leader_epoch = random.choice((-1, 0, 0, 1))
    is_new = random.random() < _WRONG

    def send(scene: Scene) -> str:
        before, scene.group = scene.group, f"{scene.group}-state"
        try:
            if get(scene, leader_epoch=-1) == "INVALID_REQUEST":
                begin(scene)
            known = _KNOWN.search(get(scene, leader_epoch=-1))
            if is_new and (known is None or epochs["state_epoch"] != int(known[1])):
                return begin(scene, start_offset=start, **epochs)
            later = start if known is None or start < 0 else max(start, int(known[2]))
            written = put(scene, batch, start_offset=later, leader_epoch=leader_epoch, **epochs)
            return f"{written}; {get(scene, leader_epoch=-1)}"
        finally:
            scene.group = before

    return _Step(f"state {epochs} {start} {batch} {leader_epoch} {is_new}", send)
