"""The ends of `penstock bridge`: which copies its options skip."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from threading import Event

import pytest

from penstock.cli.bridges import running
from penstock.cli.bridges.options import Copying
from tests.bridge.fakes import FakeSource, FakeTarget, message


class Queue(FakeTarget):
    system = "sqs"


@pytest.mark.parametrize(
    ("reverse", "copies", "queue", "written"),
    [
        (True, False, "images", 0),
        (True, False, "images-returned", 1),
        (True, False, None, 0),
        (True, True, "images", 1),
        (False, False, "images", 0),
        (False, True, "images", 1),
    ],
)
def test_copies_are_sent_back_only_with_an_option(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reverse: bool,
    copies: bool,
    queue: str | None,
    written: int,
) -> None:
    origin, place = ("sqs", "images") if reverse else ("kafka", "thumbs")
    source = FakeSource([replace(message(0), origin=origin, origin_place=place)])
    monkeypatch.setattr(running, "TopicSource", lambda *_: source)
    monkeypatch.setattr(running, "TopicTarget", lambda *_: FakeTarget())
    copying = Copying(reverse=reverse, copies=copies, exit_at_end=True)
    settings = replace(copying.settings(), poll_s=0.001)
    ends = running.Ends(lambda: source, Queue, (), queue)
    counts, _ = asyncio.run(running._run("127.0.0.1:1", "thumbs", ends, copying, settings, Event()))
    assert (counts.written, counts.skipped) == (written, 1 - written)
    assert ("--copies" in capsys.readouterr().err) is not bool(written)
