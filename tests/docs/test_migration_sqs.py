"""The programs and commands of the guide from SQS, on a broker and with ElasticMQ and moto."""

from __future__ import annotations

import pytest

from penstock.testing import QueueCluster
from tests.docs.migration import Guide

PAGE = "docs/migrating-from-sqs.md"


def test_the_new_program(
    penstock_queues: QueueCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd)
    guide.create("images")
    assert guide.after() == ["['resize 1', 'resize 2']\n"]


def test_the_way_there_and_back(
    sqs_url: str,
    penstock_queues: QueueCluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd)
    names = guide.before()
    url = names["sqs"].create_queue(QueueName="images")["QueueUrl"]
    returned = names["sqs"].create_queue(QueueName="images-returned")["QueueUrl"]
    names["send"](url, ["a", "b"])
    assert sorted(names["work"](url, 2)) == ["a", "b"]
    names["send"](url, [str(number) for number in range(25)])

    assert names["depth"](url) == 25

    # The ids are the messages that were in the queue when the workers stopped, and those sent since.
    copy, back = guide.commands()
    there = copy()
    assert "copied 25 messages of SQS queue images to topic images" in there
    assert there.splitlines()[-1].split() == ["sqs", "25", "25", "0", "0"]
    names["send"](url, ["z"])
    assert copy().splitlines()[-1].split() == ["sqs", "26", "26", "0", "0"]
    assert names["depth"](url) == 0

    (worked,) = guide.after()
    assert worked == "['0', '1']\n"
    # From offset 20 on: six copies, and two records of the program.
    assert "copied 8 messages of topic images to SQS queue images-returned" in back()
    assert names["depth"](returned) == 8
