"""Pages that a reader may try on one broker write to topics of their own."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from tests.docs.walkthrough import blocks

#: those that use `127.0.0.1:9092`, the broker of the README
PAGES: Final = (
    "README.md",
    "docs/cli.md",
    "docs/clients.md",
    "docs/groups.md",
    "docs/transactions.md",
    "docs/queues.md",
    "docs/queues-coming-from.md",
    *(
        f"docs/tutorials/{name}.md"
        for name in ("first-topic", "work-queue", "exactly-once-billing", "from-kafka", "spark-to-delta")
    ),
)
_WRITES: Final = re.compile(
    r"""(?:\.produce|send|send_nowait|send_batch|create_topic|dead_letter=)\(?\s*"([a-zA-Z][\w.-]*)"|"""
    r"""penstock (?:produce|topic create) ([a-zA-Z][\w.-]*)"""
)


def written(page: str) -> set[str]:
    code = "\n".join(block.code for block in blocks(page, "sh", "python"))
    return {topic for found in _WRITES.findall(code) for topic in found if topic}


def test_the_expression_finds_topics() -> None:
    assert {"greetings", "hellos", "baskets", "bills"} <= written("README.md")
    assert {"words", "orders", "mistake"} <= written("docs/cli.md")
    assert {"thumbnails", "bills-to-pay"} <= written("docs/queues.md")


def test_no_two_pages_write_to_one_topic() -> None:
    by_topic: dict[str, list[str]] = defaultdict(list)
    for page in PAGES:
        for topic in written(page):
            by_topic[topic].append(page)
    assert {topic: pages for topic, pages in by_topic.items() if len(pages) > 1} == {}
