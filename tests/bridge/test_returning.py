"""Copies do not go back to the queue or topic that they came from, and go everywhere else."""

from __future__ import annotations

import asyncio

import pytest

from penstock.bridge.copying import Copier, CopySettings
from penstock.bridge.mapping import KeyRule, from_record
from penstock.bridge.message import Bridged, copy_headers
from penstock.bridge.returning import Home, ReturningSource
from penstock.bridge.sqs_mapping import from_sqs, to_sqs
from penstock.bridge.window import Counts
from tests.bridge.fakes import FakeSource, FakeTarget

AT_END = CopySettings(exit_at_end=True, poll_s=0.001)
QUEUED = from_sqs(
    {"Body": "resize 1", "MessageId": "m-1"}, queue="images", rule=KeyRule(), unwrap_sns=False, handle="r"
)


def in_topic(message: Bridged, topic: str = "images") -> Bridged:
    """The message, after a bridge has copied it to a topic."""
    return from_record(
        topic=topic,
        partition=0,
        offset=0,
        key=None,
        value=message.body,
        headers=copy_headers(message),
        time_ms=1,
        handle=0,
    )


def in_queue(message: Bridged, queue: str) -> Bridged:
    """The message, after `--reverse` has copied it to a queue."""
    copy = to_sqs(message)
    there = {"Body": copy.body, "MessageId": "m-2", "MessageAttributes": copy.attributes}
    return from_sqs(there, queue=queue, rule=KeyRule(), unwrap_sns=False, handle="r")


def copied(message: Bridged, home: Home | None) -> tuple[Counts, list[str]]:
    class Elsewhere(FakeTarget):
        system = "kafka" if home is None else home.system

    said: list[str] = []
    source = ReturningSource(FakeSource([message]), home, said.append)
    return asyncio.run(Copier(source, Elsewhere(), AT_END).run()), said


def test_the_only_copy_of_a_message_goes_to_another_queue() -> None:
    """A bridge deletes what it has copied: after a rollback the message would be lost."""
    counts, said = copied(in_topic(QUEUED), Home("sqs", "images-returned"))
    assert (counts.written, counts.skipped, said) == (1, 0, [])


@pytest.mark.parametrize("place", ["images", None])
def test_a_copy_does_not_return_to_its_origin_and_is_logged_in_one_line(place: str | None) -> None:
    counts, said = copied(in_topic(QUEUED), Home("sqs", place))
    assert (counts.written, counts.skipped, counts.acknowledged) == (0, 1, 1)
    (line,) = said
    assert "sqs images" in line and "--copies" in line


def test_a_record_comes_back_to_another_topic_only() -> None:
    returned = in_queue(in_topic(QUEUED, "images"), "images-returned")
    assert copied(returned, Home("kafka", "images"))[0].skipped == 1
    assert copied(returned, Home("kafka", "thumbs"))[0].written == 1


@pytest.mark.parametrize("message", [in_topic(QUEUED), in_queue(in_topic(QUEUED), "images")])
def test_everything_is_copied_without_a_home(message: Bridged) -> None:
    counts, said = copied(message, None)
    assert (counts.written, counts.skipped, said) == (1, 0, [])
