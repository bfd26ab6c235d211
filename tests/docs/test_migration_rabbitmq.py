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
    guide.create("thumbs", "payments-made", "chores", "chores.urgent")
    assert guide.after() == [
        "['resize 1', 'resize 2']\n",
        "accounting payment 7\nmailing payment 7\n",
        "['later', 'now']\n",
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

    there, back = guide.commands()
    assert "copied 3 messages of AMQP queue thumbs to topic thumbs" in there
    assert there.splitlines()[-1].split() == ["amqp", "3", "3", "0", "0"]
    assert "copied 0 messages of topic thumbs to AMQP queue thumbs, 3 skipped" in back
