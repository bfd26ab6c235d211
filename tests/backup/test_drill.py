"""A rehearsed disaster, with the commands of docs/archive.md: the cluster is gone, and goes on elsewhere."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.archive.names import cut_time_ms
from tests.backup.clusters import commit_offsets, committed, consume, create, produce, transactional
from tests.cli.running import interruptible, run, running_broker

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_cluster_is_gone_and_goes_on_elsewhere(tmp_path: Path) -> None:
    """Brokers and the backup are killed under load; the data directory is lost with the machine."""
    archive, here, there = tmp_path / "archive", tmp_path / "here", tmp_path / "there"
    with running_broker("--data", str(here)) as (process, address):
        create(address, "orders", 2, retention_ms="-1")
        produce(address, "orders", [b"%d" % n for n in range(1000)])
        commit_offsets(address, "billing", "orders", 400)
        with interruptible(
            "backup", "run", "--to", str(archive), "--every", "1s", "--bootstrap", address
        ) as backup:
            load = Load(address)
            cuts = 0
            assert backup.stdout is not None
            while cuts < 3:
                load.go_on()
                cuts += backup.stdout.readline().startswith("cut ")
            before_cut, moment_ms = len(load.acknowledged), int(1000 * time.time())
            while newest_ms(archive) <= moment_ms:
                assert backup.stdout.readline().startswith("cut ")
            load.go_on()
            process.send_signal(signal.SIGKILL)
            backup.send_signal(signal.SIGKILL)
    shutil.rmtree(here)

    listed = json.loads(run("backup", "list", str(archive), "--json").stdout)
    newest = max(cut["time"] for cut in listed)
    assert run("backup", "verify", f"{archive}@{newest}").returncode == 0
    with running_broker("--mount", f"{archive}@{newest}") as (_, address):
        mounted = {n: consume(address, "orders", n) for n in (0, 1)}
        assert committed(address, "billing", "orders") == 400
    assert run("restore", f"{archive}@{newest}", "--data", str(there)).returncode == 0
    with running_broker("--data", str(there)) as (_, address):
        restored = {n: consume(address, "orders", n) for n in (0, 1)}
        assert restored == mounted
        assert [value for *_, value in restored[0]][:1000] == [b"%d" % n for n in range(1000)]
        pairs = [[v for *_, v in restored[n] if v.startswith(b"pair")] for n in (0, 1)]
        # A transaction is there with all its records in all partitions, or not at all; none that the source
        # had not acknowledged, and all before the cut.
        assert pairs[0] == pairs[1] == load.acknowledged[: len(pairs[0])]
        assert len(pairs[0]) >= before_cut > 0
        assert committed(address, "billing", "orders") == 400
        produce(address, "orders", [b"it goes on"])
        assert consume(address, "orders", 0)[-1][2] == b"it goes on"


def newest_ms(archive: Path) -> int:
    """The time of the newest cut."""
    return max(cut_time_ms(path.name) or 0 for path in (archive / "cuts").iterdir())


class Load:
    """A transactional producer that writes a pair of records, one to each partition, again and again."""

    def __init__(self, bootstrap: str) -> None:
        self._producer: Producer = transactional(bootstrap, "pairs")
        self.acknowledged: list[bytes] = []

    def go_on(self) -> None:
        for _ in range(20):
            value = b"pair %d" % len(self.acknowledged)
            self._producer.begin_transaction()
            for partition in (0, 1):
                self._producer.produce("orders", value, partition=partition)
            self._producer.commit_transaction(30)
            self.acknowledged.append(value)
