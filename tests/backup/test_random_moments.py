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

from penstock.archive.names import cut_time_ms
from tests.backup.clusters import committed, consume
from tests.backup.load import ARCHIVE, Load
from tests.backup.sources import OneBroker, Source, TieredCluster
from tests.backup.stores import WITH_S3, real_s3
from tests.cli.running import PENSTOCK, run, running_broker

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not WITH_S3, reason="minutes with a real S3 server: `make archive` runs it"),
]

_MOMENTS = 10
#: a store that is down for longer than brokers and clients wait for anything
_STORE_DOWN_S = 120.0


@pytest.mark.parametrize("kind", [OneBroker, TieredCluster])
def test_restores_to_random_moments_equal_the_source_at_that_moment(
    kind: type[Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers, the backup, the store and a restore are killed on the way, and disks are full.

    Of a tiered cluster, only the archive has most records at the end.
    """
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (tmp_path / "s3").mkdir()
    with real_s3(tmp_path / "s3") as (store, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        source = kind(tmp_path / "source", rng)
        source.start()
        try:
            source.create("orders")
            load = Load(source.bootstrap)
            load.go_on()  # all cuts have the group
            with running_backup(source.bootstrap):
                load.until_cuts(3)
                source.disturb(load)
            # It was killed. The next one goes on where it was.
            with running_backup(source.bootstrap):
                load.until_cuts(2)
                store.kill()
                down_until = time.monotonic() + (_STORE_DOWN_S if kind is TieredCluster else 3)
                while time.monotonic() < down_until:
                    load.go_on()
                    time.sleep(1)
                store.start()
                load.until_cuts(2)
                source.disturb(load)
                load.until_cuts(3)
            load.until(source.has_freed_disks)
            everything = {n: consume(source.bootstrap, "orders", n) for n in (0, 1)}
            load.check_all(everything)
        finally:
            source.stop()
        if kind is TieredCluster:
            done = run("backup", "verify", ARCHIVE, "--tiered")
            assert done.returncode == 0, done.stdout
        moments = sorted(cut_times())
        chosen = [rng.randint(moments[0], moments[-1] + 500) for _ in range(_MOMENTS)]
        assert run("backup", "verify", ARCHIVE).returncode == 0
        with running_broker("--data", str(tmp_path / "target")) as (_, address):
            restore_is_killed(address, moments[-1])
            for number, moment in enumerate(chosen):
                cut = max(each for each in moments if each <= moment)
                topic, group = f"orders-{number}", f"billing-{number}"
                into = ("--topic", f"orders={topic}", "--group", f"billing={group}")
                done = run("restore", f"{ARCHIVE}@{moment}", "--bootstrap", address, *into)
                assert done.returncode == 0, done.stderr
                restored = {n: consume(address, topic, n) for n in (0, 1)}
                load.check(cut, restored, everything)
                load.check_group(cut, committed(address, group, topic), restored[0])
        moment = chosen[0]
        assert run("restore", f"{ARCHIVE}@{moment}", "--data", str(tmp_path / "new")).returncode == 0
        with running_broker("--data", str(tmp_path / "new")) as (_, address):
            restored = {n: consume(address, "orders", n) for n in (0, 1)}
            load.check(max(each for each in moments if each <= moment), restored, everything)


def cut_times() -> list[int]:
    listed = json.loads(run("backup", "list", ARCHIVE, "--json").stdout)
    return [time_ms for each in listed if (time_ms := cut_time_ms(each["name"])) is not None]


def restore_is_killed(address: str, moment: int) -> None:
    """Another one, of the same topics, says what is left of it; under other names it is not in the way."""
    arguments = ["restore", f"{ARCHIVE}@{moment}", "--bootstrap", address, "--topic", "orders=killed"]
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
    words = ["backup", "run", "--to", ARCHIVE, "--every", "500ms", "--bootstrap", bootstrap]
    process = subprocess.Popen([*PENSTOCK, *words], stdout=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "the backup has ended by itself"
    finally:
        process.kill()
        process.wait()
