"""Rolls of a cluster of real processes under load: previous version, this one, back, and this one again.

`make test` has one roll; `make roll` all of them, with both versions side by side for longer.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chaos.clients import TOPIC
from chaos.history import Outcome
from penstock.cli.cluster.broker_home import homes_in
from tests.rolling.clusters import THIS, check, cluster, penstock, programs, roll
from tests.rolling.load import Load
from tests.spark.connectors import Connector, Stream
from tests.waiting import eventually
from tools.versions import BEFORE_0_2, RELEASE_0_1, NoSuchVersion, environment

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: seconds for which brokers of both versions run in `make roll`
MIXED_S = float(os.environ.get("ROLL_MIXED_S", "0"))


def levels(data: Path) -> dict[str, int]:
    status: dict[str, Any] = json.loads(
        check(penstock(THIS, "cluster", "status", "--data", str(data), "--json"))
    )
    return {each["feature"]: each["to"] for each in status["raises"]}


def in_history(commit: str) -> Path:
    """The environment of a commit; skips the test if this clone does not have it."""
    try:
        return environment(commit)
    except NoSuchVersion as error:
        pytest.skip(str(error))


def roll_there_and_back(previous: Path, data: Path, load: Load) -> None:
    """To this version, back, and to this version again, while the load goes on."""
    load.start()
    eventually(lambda: load.acknowledged > 100)
    for version in (THIS, previous, THIS):
        before = load.acknowledged
        roll(version, data)
        assert load.acknowledged > before
        time.sleep(MIXED_S)  # versions run side by side
    check_load(load, data)


def check_load(load: Load, data: Path) -> None:
    """End the load, which brokers of the previous version have served, too."""
    wrong = load.finish(homes_in(data)[0].path / "data")
    assert not wrong, [*wrong, *load.lines()]
    print(*load.lines(), sep="\n")


def check_upgrade(previous: Path, data: Path, raised: dict[str, int]) -> None:
    """Finalise this version; there is no way back then, and no broker is down after the attempt."""
    assert raised.items() <= levels(data).items()
    check(penstock(THIS, "cluster", "upgrade", "--data", str(data)))
    assert levels(data) == {}
    words = ("cluster", "roll", "--data", str(data), "--upgrade-to", str(previous), "--timeout", "60")
    refused = penstock(THIS, *words)
    assert refused.returncode == 1
    reason = refused.stderr.splitlines()[-1]
    assert "did not start" in reason and "it runs again as it did before" in reason, refused.stderr
    assert programs(data) == {str(THIS / "bin" / "python")}


def test_a_roll_to_this_version_under_load_loses_nothing(tmp_path: Path) -> None:
    """The rest of this file is for `make roll`: each roll takes a quarter of a minute."""
    previous, data = in_history(BEFORE_0_2), tmp_path / "cluster"
    with cluster(previous, data) as bootstrap:
        load = Load(bootstrap, is_basic=True)
        load.start()
        eventually(lambda: load.acknowledged > 100)
        roll(THIS, data)
        check_load(load, data)
        assert levels(data)["penstock.version"] == 2, "the cluster works at the level of 0.1 still"


@pytest.mark.skipif(os.environ.get("ROLL") != "all", reason="`make roll` runs it")
def test_rolls_there_and_back_under_load_lose_nothing(tmp_path: Path) -> None:
    """All clients, between a commit at the level of 0.1 and this version."""
    previous, data = in_history(BEFORE_0_2), tmp_path / "cluster"
    with cluster(previous, data) as bootstrap:
        load = Load(bootstrap)
        roll_there_and_back(previous, data, load)
        assert load.committed > 10, load.lines()
        check_upgrade(previous, data, {"penstock.version": 2})


@pytest.mark.skipif(os.environ.get("ROLL") != "all", reason="`make roll` runs it")
def test_the_first_release_is_rolled_there_and_back(tmp_path: Path) -> None:
    """Release 0.1.0 has no transactions and no share groups: they are off until the upgrade."""
    previous, data = in_history(RELEASE_0_1), tmp_path / "cluster"
    with cluster(previous, data) as bootstrap:
        roll_there_and_back(previous, data, Load(bootstrap, is_basic=True))
        check_upgrade(previous, data, {"penstock.version": 2, "share.version": 1, "transaction.version": 2})


@pytest.mark.skipif(os.environ.get("ROLL") != "all", reason="`make roll` runs it")
def test_brokers_are_restarted_by_a_command(tmp_path: Path) -> None:
    """As with systemd or kubectl: the roll sees new registrations, not processes."""
    data, script = tmp_path / "cluster", tmp_path / "restart"
    command = f"{THIS / 'bin' / 'python'} -P -m penstock broker"
    script.write_text(f"#!/bin/sh -e\n{command} stop $1 --data {data}\n{command} start $1 --data {data}\n")
    script.chmod(0o700)
    with cluster(THIS, data) as bootstrap:
        load = Load(bootstrap, is_basic=True)
        load.start()
        eventually(lambda: load.acknowledged > 100)
        before = {home.id: home.process() for home in homes_in(data)}
        words = ("cluster", "roll", "--bootstrap", bootstrap, "--with", f"{script} {{broker}}")
        assert check(penstock(THIS, *words)).count("restarted") == 3
        assert all(home.process() not in (None, before[home.id]) for home in homes_in(data))
        wrong = load.finish()
        assert not wrong, [*wrong, *load.lines()]


@pytest.mark.skipif(os.environ.get("ROLL") != "all", reason="`make roll` runs it")
def test_a_spark_stream_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """A streaming query reads each message once, whatever version leads its partitions."""
    previous, data = in_history(BEFORE_0_2), tmp_path / "cluster"
    with cluster(previous, data) as bootstrap:
        load = Load(bootstrap, is_basic=True)
        connector = Connector("penstock", spark, bootstrap)
        stream = Stream(connector.stream(TOPIC, startingOffsets="earliest"), tmp_path / "checkpoint")
        query = stream.start()
        try:
            roll_there_and_back(previous, data, load)
            query.processAllAvailable()
        finally:
            query.stop()
        sent = [send.value for send in load.history.sends if send.outcome is Outcome.ACKNOWLEDGED]
        assert sorted(value for batch in stream.batches for value in batch) == sorted(sent)
