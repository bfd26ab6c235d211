"""Runs the blocks of a migration guide against both systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing import QueueCluster
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.docs.walkthrough import Shell, blocks

__all__ = ["Guide"]

_WAIT_S = 60


class Guide:
    """A page whose first program is for the other system, and whose other programs are for Penstock."""

    def __init__(
        self,
        page: str,
        cluster: QueueCluster,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        """`replaced` has the addresses of the page, with those of the test."""
        self._page = page
        self._cluster = cluster
        self._replaced = dict(replaced or {})
        self._shell = Shell(monkeypatch, capfd, rewritten=self._rewritten)
        self._shell.use(cluster.bootstrap)

    def _rewritten(self, text: str) -> str:
        for before, after in self._replaced.items():
            text = text.replace(before, after)
        return text

    def create(self, *topics: str) -> None:
        """Create topics: librdkafka takes half a second to notice one that was created for it."""
        with RawClient(self._cluster.bootstrap) as client:
            for topic in topics:
                create_topic(client, topic)

    def before(self) -> dict[str, Any]:
        """The program of the other system: its names."""
        names: dict[str, Any] = {}
        exec(self._rewritten(blocks(self._page, "python")[0].code), names)
        return names

    def after(self) -> list[str]:
        """Run the programs for Penstock; their output."""
        found = blocks(self._page, "python")[1:]
        return [self._shell.run(block._replace(code=self._rewritten(block.code))) for block in found]

    def commands(self) -> Sequence[Callable[[], str]]:
        """The blocks of commands on the page. Each call runs a block, and returns its output."""
        return [partial(self._shell.run, block) for block in blocks(self._page, "sh")]

    def replace(self, before: str, after: str) -> None:
        """Replace a text of the page from now on."""
        self._replaced[before] = after

    def send(self, topic: str, *values: str) -> None:
        """Send records as an application that uses the topic, in this order."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(_WAIT_S) == 0
