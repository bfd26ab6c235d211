"""The check of audit chains: every way to remove, change, move or add an event is found, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.audit.chain import Chain, Head, canonical, hash_of
from penstock.audit.internal_events import FILE_DELETED
from penstock.audit.verification import Verifier, read_entry

KEY = b"0123456789abcdef"


def events(count: int, name: str = "1/file/a", key: bytes = KEY, previous: Head | None = None) -> list[bytes]:
    chain = Chain(name, key, previous)
    made = [{"event": "denied", "n": n, "dropped": 2} if n == 3 else {"n": n} for n in range(count)]
    return [chain.seal(event) for event in made]


def head_of(line: bytes) -> Head:
    event = json.loads(line)
    return Head(event["chain"], event["seq"], event["hash"])


def checked(lines: Iterable[bytes], key: bytes = KEY, **options: Any) -> Verifier:
    verifier = Verifier(key, **options)
    for number, line in enumerate(lines, 1):
        verifier.take(read_entry(f"line {number}", line, key))
    verifier.end()
    return verifier


def first(verifier: Verifier) -> tuple[str, str]:
    return verifier.findings[0]


def test_a_whole_chain_is_right_and_drops_are_no_removals() -> None:
    verifier = checked(events(10))
    assert not verifier.findings
    assert verifier.summary() == {"events": 10, "chains": 1, "dropped": 2, "findings": 0}


def test_a_removed_event_is_a_gap() -> None:
    lines = events(10)
    del lines[4:6]
    place, text = first(checked(lines))
    assert place == "line 5" and "events 5 to 6 of 1/file/a are missing" in text


def test_a_changed_event_is_found() -> None:
    lines = events(10)
    lines[4] = lines[4].replace(b'"n":4', b'"n":5')
    place, text = first(checked(lines))
    assert place == "line 5" and "event 5 of 1/file/a was changed" in text


def test_a_changed_event_with_a_new_hash_is_found_by_the_next_one() -> None:
    """Without a key anyone can compute a hash: the link of the next event shows it."""
    lines = events(10, key=b"")
    event = json.loads(lines[4])
    del event["hash"]
    event["n"] = 99
    lines[4] = canonical({**event, "hash": hash_of(b"", canonical(event))})
    verifier = checked(lines, b"")
    place, text = first(verifier)
    assert place == "line 6" and "does not follow" in text


def test_without_the_key_no_chain_can_be_made_anew() -> None:
    forged = Chain("1/file/a", b"")
    lines = [forged.seal({"n": n}) for n in range(3)]
    assert "made with no key" in first(checked(lines))[1]
    lines = events(3, key=b"another key here")
    assert "made with a key: give the right key" in first(checked(lines))[1]
    # An attacker who copies the name of the key cannot copy its hashes.
    event = json.loads(events(1)[0])
    del event["hash"]
    event["n"] = 1
    lines = [canonical({**event, "hash": hash_of(b"", canonical(event))})]
    assert "was changed, or the key is wrong" in first(checked(lines))[1]


@pytest.mark.parametrize("moved", [(3, 4), (2, 7)])
def test_moved_events_are_found(moved: tuple[int, int]) -> None:
    lines = events(10)
    a, b = moved
    lines[a], lines[b] = lines[b], lines[a]
    assert checked(lines).findings


def test_a_repeated_event_is_found_unless_repeats_are_expected() -> None:
    lines = events(10)
    lines.insert(6, lines[5])
    assert "comes after 6" in first(checked(lines))[1]
    assert not checked(lines, repeats=True).findings
    lines[6] = lines[6].replace(b'"n":5', b'"n":6')
    assert checked(lines, repeats=True).findings, "another event with the same number"


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"garbage", b'{"event": "forged"}', b'{"chain":"a","chain":"b"}']
)
def test_added_lines_are_found(line: bytes) -> None:
    lines = events(4)
    lines.insert(2, line)
    assert first(checked(lines))[0] == "line 3"


def test_an_equal_name_twice_is_found() -> None:
    """One program would show the first principal, another one the second."""
    lines = events(4)
    lines[2] = lines[2].replace(b'{"chain"', b'{"n":7,"chain"')
    assert first(checked(lines)) == ("line 3", "is not an audit event: changed, or cut off")


def test_a_torn_line_is_found() -> None:
    lines = events(4)
    lines[-1] = lines[-1][:40]
    assert first(checked(lines))[0] == "line 4"


def test_a_cut_end_is_found_by_the_next_chain() -> None:
    before = events(10)
    after = events(3, "1/file/b", previous=head_of(before[-1]))
    assert not checked([*before, *after]).findings
    place, text = first(checked([*before[:-2], *after]))
    assert place == "line 9" and "begins after event 10 of 1/file/a, but there is only 8" in text
    assert "there is none of them" in first(checked([*events(2, "1/file/0"), *after]))[1]


def test_a_cut_end_is_found_by_a_head_from_elsewhere_and_only_so() -> None:
    lines = events(10)
    assert not checked(lines[:8]).findings, "nothing in the file says that there was more"
    verifier = checked(lines[:8], known=[head_of(lines[9])])
    assert first(verifier) == ("end", "event 10 of 1/file/a is known, but missing: the last one is 8")
    assert not checked(lines, known=[head_of(lines[9]), head_of(lines[3])]).findings
    forged = head_of(lines[9])._replace(hash="0" * 64)
    assert "another one than the known head" in first(checked(lines, known=[forged]))[1]


def test_a_missing_beginning_is_found_unless_the_broker_reports_it() -> None:
    chain = Chain("1/file/a", KEY)
    lines = [chain.seal({"n": n}) for n in range(10)]
    place, text = first(checked(lines[5:]))
    assert place == "line 1" and "event 5 of 1/file/a and those before it are missing" in text
    assert not checked(lines[5:], may_begin_late=True).findings
    report = chain.seal({"event": FILE_DELETED, "last": head_of(lines[4])._asdict()})
    assert not checked([*lines[5:], report]).findings
    assert checked([*lines[6:], report]).findings, "one more is missing than the broker has deleted"


def test_a_chain_without_its_predecessor_is_found() -> None:
    lines = [*events(3), *events(3, "1/file/b")]
    assert "does not continue the one before" in first(checked(lines))[1]
    lines = [*events(3), *events(3, "1/file/b", previous=head_of(events(3)[-1]))[1:]]
    assert "events 1 to 1 of 1/file/b are missing" in first(checked(lines))[1]


def test_chains_of_several_brokers_are_independent() -> None:
    one, two = events(5), events(5, "2/file/a")
    lines = [line for pair in zip(one, two, strict=True) for line in pair]
    assert not checked(lines).findings


def test_every_removal_of_events_inside_is_found() -> None:
    seed = random.randrange(1 << 32)
    rng, lines = random.Random(seed), events(60)
    for _ in range(200):
        kept = sorted(rng.sample(range(60), rng.randrange(1, 60)))
        remaining = [lines[n] for n in kept]
        is_prefix = kept == list(range(len(kept)))
        assert bool(checked(remaining).findings) is not is_prefix, f"seed {seed}: {kept}"
