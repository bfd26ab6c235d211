"""Restores to random moments of a cluster under load, from an S3 server, with a kill of each process.

Each is compared record by record with the source, and with what its clients know to be acknowledged.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from lab.penstock import penstock
from penstock.archive.names import cut_time_ms
from tests.backup.clusters import commit_offsets, committed, consume, create, transactional
from tests.backup.stores import WITH_S3, real_s3
from tests.cli.running import PENSTOCK, run, running_broker

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not WITH_S3, reason="minutes with a real S3 server: `make archive` runs it"),
]

_ARCHIVE = "s3://archive/kafka"
_MOMENTS = 10
#: how long a cut may read the offsets of groups
_READ_MS = 5000


def test_restores_to_random_moments_equal_the_source_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker, the backup, the store and a restore are killed on the way."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (tmp_path / "s3").mkdir()
    (tmp_path / "source").mkdir()
    source = penstock(tmp_path / "source", {})
    with real_s3(tmp_path / "s3") as (store, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        source.start()
        try:
            create(source.bootstrap, "orders", 2, retention_ms="-1")
            load = Load(source.bootstrap)
            load.go_on()  # all cuts have the group
            with running_backup(source.bootstrap):
                load.until_cuts(3)
            # It was killed. The next one goes on where it was.
            with running_backup(source.bootstrap):
                load.until_cuts(2)
                store.kill()
                load.go_on()
                time.sleep(3)  # the store is down for some intervals
                store.start()
                load.until_cuts(2)
                source.kill()
                source.start()
                load.until_cuts(3)
            everything = {n: consume(source.bootstrap, "orders", n) for n in (0, 1)}
        finally:
            source.stop()
        moments = sorted(cut_times())
        chosen = [rng.randint(moments[0], moments[-1] + 500) for _ in range(_MOMENTS)]
        assert run("backup", "verify", _ARCHIVE).returncode == 0
        with running_broker("--data", str(tmp_path / "target")) as (_, address):
            restore_is_killed(address, moments[-1])
            for number, moment in enumerate(chosen):
                cut = max(each for each in moments if each <= moment)
                topic, group = f"orders-{number}", f"billing-{number}"
                into = ("--topic", f"orders={topic}", "--group", f"billing={group}")
                done = run("restore", f"{_ARCHIVE}@{moment}", "--bootstrap", address, *into)
                assert done.returncode == 0, done.stderr
                restored = {n: consume(address, topic, n) for n in (0, 1)}
                load.check(cut, restored, everything)
                load.check_group(cut, committed(address, group, topic), restored[0])
        moment = chosen[0]
        assert run("restore", f"{_ARCHIVE}@{moment}", "--data", str(tmp_path / "new")).returncode == 0
        with running_broker("--data", str(tmp_path / "new")) as (_, address):
            restored = {n: consume(address, "orders", n) for n in (0, 1)}
            load.check(max(each for each in moments if each <= moment), restored, everything)


def cut_times() -> list[int]:
    listed = json.loads(run("backup", "list", _ARCHIVE, "--json").stdout)
    return [time_ms for each in listed if (time_ms := cut_time_ms(each["name"])) is not None]


def restore_is_killed(address: str, moment: int) -> None:
    """Another one, of the same topics, says what is left of it; under other names it is not in the way."""
    arguments = ["restore", f"{_ARCHIVE}@{moment}", "--bootstrap", address, "--topic", "orders=killed"]
    process = subprocess.Popen([*PENSTOCK, *arguments])
    try:
        while process.poll() is None and "killed" not in topics_at(address):
            pass
    finally:
        process.kill()
        process.wait()
    if process.returncode == -signal.SIGKILL:
        done = run(*arguments)
        assert done.returncode == 1 and "topic killed exists already" in done.stderr


def topics_at(address: str) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).topics)


@contextmanager
def running_backup(bootstrap: str) -> Iterator[None]:
    """A backup each half second, which is killed at the end."""
    words = ["backup", "run", "--to", _ARCHIVE, "--every", "500ms", "--bootstrap", bootstrap]
    process = subprocess.Popen([*PENSTOCK, *words], stdout=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "the backup has ended by itself"
    finally:
        process.kill()
        process.wait()


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
        wanted = len(cut_times_or_none()) + count
        while len(cut_times_or_none()) < wanted:
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

    def check_group(self, cut_ms: int, offset: int, restored: list[tuple[int, int, bytes]]) -> None:
        """The offset was committed, and not before the last commit that the cut must have."""
        # The cut has read the offsets before the moment that is its time.
        known = [each for at, each in self.commits if at < cut_ms - _READ_MS]
        if known:
            assert offset >= known[-1]
        assert offset < 0 or offset in [each for _, each in self.commits]
        assert offset <= restored[-1][0] + 2  # behind the last record and its marker


def cut_times_or_none() -> list[int]:
    """None while the store has no archive yet."""
    done = run("backup", "list", _ARCHIVE, "--json")
    return [] if done.returncode else [each["time"] for each in json.loads(done.stdout)]


def _now_ms() -> int:
    return int(1000 * time.time())
