"""Every block of the pages about queues runs, in their order, on one broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from penstock.testing import QueueCluster
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.docs.walkthrough import Shell, blocks

#: what the blocks in Python print, in the order of the pages
PRINTED: Final = {
    "docs/queues.md": [
        "user-0 1\nuser-1 1\nuser-2 1\n",
        "rejected b'many'\n",
        "painted 1\npainted 2\nb'broken' ValueError\n",
        "b'7 pounds' b'Record rejected by the consumer.'\n",
        "b'drink water' True\n",
    ],
    "docs/queues-coming-from.md": [
        "b'invoice 7' 1\n",
        "b'resize cat.png'\nb'resize cat.png' 2\n",
        "5\n",
    ],
}
TOPICS: Final = (
    "emails",
    "amounts-to-book",
    "thumbnails",
    "thumbnails.dead",
    "payments",
    "invoices-to-send",
    "tasks",
    "celery",
    "celery.dead",
)


def test_the_pages_about_queues(
    penstock_queues: QueueCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(monkeypatch, capfd)
    shell.use(penstock_queues.bootstrap)
    # librdkafka takes half a second to notice a topic that was created for it.
    with RawClient(penstock_queues.bootstrap) as client:
        for topic in TOPICS:
            create_topic(client, topic)
    printed: dict[str, list[str]] = {}
    for page in PRINTED:
        for block in blocks(page, "sh", "python"):
            output = shell.run(block)
            if block.language == "python":
                printed.setdefault(page, []).append(output)
    assert printed == PRINTED
