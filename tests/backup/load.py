"""Transactions under which brokers, backups and stores fail, and what has to be there afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

from tests.backup.clusters import commit_offsets, transactional
from tests.cli.running import run

__all__ = ["ARCHIVE", "Load"]

ARCHIVE = "s3://archive/kafka"
#: how long a cut may read the offsets of groups
_READ_MS = 5000
_PATIENCE_S = 240.0


class Load:
    """Transactions that write a pair of records, one to each partition; each fourth is aborted."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: Producer | None = None
        self._number = 0
        #: value -> time of the acknowledgement, in milliseconds
        self.acknowledged: dict[bytes, int] = {}
        #: transactions whose commit was not answered: they are there, or not
        self.doubtful: set[bytes] = set()
        #: (time of the response, offset)
        self.commits: list[tuple[int, int]] = []

    def until_cuts(self, count: int) -> None:
        """Write until there are more cuts."""
        wanted = len(_cut_times_or_none()) + count
        self.until(lambda: len(_cut_times_or_none()) >= wanted)

    def until(self, condition: Callable[[], bool]) -> None:
        """Write until a condition holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            self.go_on()

    def go_on(self) -> None:
        for _ in range(20):
            self._pair()
        offset = len(self.acknowledged)
        try:
            commit_offsets(self._bootstrap, "billing", "orders", offset)
        except KafkaException:
            return
        self.commits.append((_now_ms(), offset))

    def _pair(self) -> None:
        self._number += 1
        is_aborted = self._number % 4 == 0
        value = b"%s %d" % (b"aborted" if is_aborted else b"pair", self._number)
        try:
            if self._producer is None:
                self._producer = transactional(self._bootstrap, "pairs")
            producer = self._producer
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce("orders", value, partition=partition)
            if is_aborted:
                producer.flush(30)
                producer.abort_transaction(30)
                return
            self.doubtful.add(value)
            producer.commit_transaction(30)
        except KafkaException:
            self._producer = None
            return
        self.doubtful.discard(value)
        self.acknowledged[value] = _now_ms()

    def check(
        self,
        cut_ms: int,
        restored: dict[int, list[tuple[int, int, bytes]]],
        everything: dict[int, list[tuple[int, int, bytes]]],
    ) -> None:
        """Records are those of the source, with offsets and times, and all that were acknowledged."""
        for n in (0, 1):
            assert restored[n] == everything[n][: len(restored[n])]
        values = [[value for *_, value in restored[n]] for n in (0, 1)]
        assert values[0] == values[1]
        assert set(values[0]) <= self.acknowledged.keys() | self.doubtful
        assert {value for value, at in self.acknowledged.items() if at < cut_ms} <= set(values[0])

    def check_all(self, found: dict[int, list[tuple[int, int, bytes]]]) -> None:
        """All that was acknowledged is there, once, and nothing else."""
        values = [[value for *_, value in found[n]] for n in (0, 1)]
        assert values[0] == values[1]
        assert len(set(values[0])) == len(values[0])
        assert self.acknowledged.keys() <= set(values[0]) <= self.acknowledged.keys() | self.doubtful

    def check_group(self, cut_ms: int, offset: int, restored: list[tuple[int, int, bytes]]) -> None:
        """The offset was committed, and not before the last commit that the cut must have."""
        # The cut has read the offsets before the moment that is its time.
        known = [each for at, each in self.commits if at < cut_ms - _READ_MS]
        if known:
            assert offset >= known[-1]
        assert offset < 0 or offset in [each for _, each in self.commits]
        assert offset <= restored[-1][0] + 2  # behind the last record and its marker


def _cut_times_or_none() -> list[int]:
    """None while the store has no archive yet."""
    done = run("backup", "list", ARCHIVE, "--json")
    return [] if done.returncode else [each["time"] for each in json.loads(done.stdout)]


def _now_ms() -> int:
    return int(1000 * time.time())
