"""The thread of a sink: order, failures, full queues, checkpoints, and the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.audit.chain import Chain, Head
from penstock.audit.verification import Verifier, read_entry
from penstock.broker.base import audit_sink
from penstock.broker.base.audit_head import HeadFile
from penstock.broker.base.audit_sink import SinkThread
from tests.broker.events import Events
from tests.waiting import eventually


class Place:
    """A place that may fail, and that may be held."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.failures = 0
        self.may_deliver = threading.Event()
        self.may_deliver.set()
        self.is_closed = False

    def open(self) -> Head | None:
        if not self.lines:
            return None
        event = json.loads(self.lines[-1])
        return Head(event["chain"], event["seq"], event["hash"])

    def has(self, head: Head) -> bool:
        return any(head.hash.encode() in line for line in self.lines)

    def prepare(self) -> Sequence[Mapping[str, Any]]:
        return ()

    def deliver(self, batch: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        self.may_deliver.wait()
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        self.lines += [line for _, line in batch]

    def close(self) -> None:
        self.is_closed = True

    @property
    def names(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.lines]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(audit_sink, "_PAUSE_FIRST_S", 0.01)
    made = Place()
    yield made
    made.may_deliver.set()


def sink_of(place: Place, name: str = "1/file/a", **options: Any) -> SinkThread:
    new_chain: Callable[[Head | None], Chain] = lambda previous: Chain(name, b"", previous)  # noqa: E731
    sink = SinkThread("file", 1, place, new_chain, **options)
    sink.start()
    return sink


def checked(lines: Sequence[bytes]) -> Verifier:
    verifier = Verifier()
    for line in lines:
        verifier.take(read_entry("", line, b""))
    verifier.end()
    return verifier


def test_events_are_chained_in_their_order(place: Place) -> None:
    sink = sink_of(place)
    for n in range(300):
        assert sink.put({"event": f"e{n}"})
    assert sink.stop(10.0)
    assert place.names == [*(f"e{n}" for n in range(300)), "audit_stopped"]
    assert place.is_closed and not checked(place.lines).findings
    assert json.loads(place.lines[0])["node_id"] == 1


def test_a_failure_is_repeated_with_the_same_events(place: Place) -> None:
    place.failures = 3
    sink = sink_of(place)
    sink.put({"event": "kept"})
    eventually(lambda: place.names == ["kept"])
    assert sink.stop(10.0) and not checked(place.lines).findings


def test_a_full_queue_drops_events_and_counts_them_inside_the_chain(place: Place) -> None:
    place.may_deliver.clear()
    sink = sink_of(place, events_max=5)
    taken = [sink.put({"event": f"e{n}", "count": 2, "dropped": 1}) for n in range(8)]
    assert taken == [True] * 5 + [False] * 3
    assert sink.dropped == 9
    place.may_deliver.set()
    eventually(lambda: len(sink) == 0)
    assert sink.put({"event": "next", "dropped": 1})
    assert sink.stop(10.0)
    assert json.loads(place.lines[5])["dropped"] == 10
    verifier = checked(place.lines)
    assert (verifier.findings, verifier.dropped) == ([], 15)


def test_a_sink_that_is_held_does_not_hold_the_stop(place: Place) -> None:
    place.may_deliver.clear()
    sink = sink_of(place)
    sink.put({"event": "late"})
    assert not sink.stop(0.05)
    assert len(sink), "the event is still queued"


def test_a_chain_without_events_gets_checkpoints(place: Place) -> None:
    sink = sink_of(place, checkpoint_s=0.01)
    eventually(lambda: len(place.lines) >= 3)
    assert sink.stop(10.0)
    assert set(place.names) == {"audit_checkpoint", "audit_stopped"} and not checked(place.lines).findings


def test_the_next_start_continues_the_last_event(place: Place, tmp_path: Path) -> None:
    head = HeadFile(str(tmp_path / "head"), b"")
    for start in "abc":
        sink = sink_of(place, f"1/file/{start}", head_file=head)
        sink.put({"event": "x"})
        assert sink.stop(10.0)
    verifier = checked(place.lines)
    assert (verifier.findings, len(verifier.heads)) == ([], 3)


@pytest.mark.parametrize("removed", [1, 2, 3])
def test_an_end_that_was_cut_while_the_broker_was_down_is_found(
    place: Place, tmp_path: Path, removed: int
) -> None:
    head = HeadFile(str(tmp_path / "head"), b"")
    sink = sink_of(place, head_file=head)
    for n in range(2):
        sink.put({"event": f"e{n}"})
    assert sink.stop(10.0)
    del place.lines[-removed:]
    sink = sink_of(place, "1/file/b", head_file=head)
    sink.put({"event": "after"})
    assert sink.stop(10.0)
    assert checked(place.lines).findings


def test_a_sink_that_was_never_started_stops(place: Place) -> None:
    assert SinkThread("file", 1, place, lambda previous: Chain("1/file/a")).stop(1.0)


def test_a_place_that_is_down_is_not_tried_for_each_event(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_sink, "_PAUSE_FIRST_S", 60.0)
    place.failures = 1_000_000
    sink = sink_of(place)
    for n in range(500):
        sink.put({"event": f"e{n}"})
    eventually(lambda: place.failures < 1_000_000)
    assert place.failures == 1_000_000 - 1
    place.failures = 0
    assert sink.stop(10.0), "a stop ends the pause"
    assert len(place.lines) == 501


def test_values_of_any_type_do_not_end_the_sink(place: Place) -> None:
    sink = sink_of(place)
    sink.put({"event": "x", "odd": {"path": Path("/x"), "text": "\ud800"}})
    assert sink.stop(10.0)
    assert place.names == ["x", "audit_stopped"] and not checked(place.lines).findings


def test_a_bug_ends_the_sink_with_a_trace(place: Place, events: Events) -> None:
    def bug() -> Head | None:
        raise ValueError("boom")

    place.open = bug  # type: ignore[method-assign]
    sink_of(place)
    eventually(lambda: len(events.of("audit_sink_ended")) == 1)


def test_a_head_of_an_earlier_chain_is_behind(place: Place, tmp_path: Path) -> None:
    """A process was killed between the delivery of its first events and the write of the head."""
    head_file = HeadFile(str(tmp_path / "head"), b"")
    for chain in "abc":
        sink = sink_of(place, f"1/file/{chain}", head_file=head_file)
        assert sink.put({"event": chain}) and sink.stop(10.0)
        if chain == "a":
            first = (tmp_path / "head").read_bytes()
        elif chain == "b":
            (tmp_path / "head").write_bytes(first)
    assert place.names == ["a", "audit_stopped", "b", "audit_stopped", "c", "audit_stopped"]
    assert json.loads(place.lines[4])["previous"]["chain"] == "1/file/b"
    assert not checked(place.lines).findings
    assert checked([*place.lines[:2], *place.lines[4:]]).findings, "the chain between them was removed"
