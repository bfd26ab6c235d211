"""The programs and commands of the guide from RabbitMQ, on a broker and on a RabbitMQ server."""

from __future__ import annotations

import asyncio

import pytest

from penstock.testing import QueueCluster
from tests.docs.migration import Guide

PAGE = "docs/migrating-from-rabbitmq.md"
URL = "amqp://guest:guest@127.0.0.1:5672/"


def test_the_new_programs(
    penstock_queues: QueueCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd)
    guide.create("thumbs", "payments-made", "orders.new", "orders.paid", "chores", "chores.urgent")
    assert guide.after() == [
        "['resize 1', 'resize 2']\n",
        "accounting payment 7\nmailing payment 7\n",
        "audit ['order 1', 'order 2']\ninvoices ['order 2']\n",
        "['now', 'later']\n",
    ]


def test_the_way_there_and_back(
    amqp_url: str,
    penstock_queues: QueueCluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd, {URL: amqp_url})
    names = guide.before()
    asyncio.run(names["send"](["a", "b"]))
    assert asyncio.run(names["work"](2)) == ["a", "b"]
    asyncio.run(names["send"](["c", "d", "e"]))

    assert asyncio.run(names["ready"]()) == 3

    # The ids are the messages that were in the queue when the workers stopped, and those sent since.
    copy, back = guide.commands()
    there = copy()
    assert "copied 3 messages of AMQP queue thumbs to topic thumbs" in there
    assert there.splitlines()[-1].split() == ["amqp", "3", "3", "0", "0"]
    asyncio.run(names["send"](["f"]))
    assert copy().splitlines()[-1].split() == ["amqp", "4", "4", "0", "0"]
    assert asyncio.run(names["ready"]()) == 0

    guide.send("thumbs", "g")
    # From offset 3 on: the copy of f, and g.
    assert "copied 1 messages of topic thumbs to AMQP queue thumbs, 1 skipped" in back()
    assert asyncio.run(names["work"](1)) == ["g"]
