"""`penstock top`, and the rates that it shows."""

from __future__ import annotations

import json

import pytest

from penstock.cli.cluster.lag import PartitionLag, partition_lags
from penstock.cli.cluster.rates import ClusterSample, TopView
from penstock.cli.commands.top import _show
from penstock.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    FollowerLag,
)
from tests.cli.running import Command

KEY = ("orders", 0)


def test_rates_and_lag_between_two_samples() -> None:
    now = 100.0
    view = TopView(lambda: now)
    first = view.update(ClusterSample({KEY: 10}, {KEY: PartitionLag(1000)}, {KEY: 1}, {"billing": {KEY: 10}}))
    assert first["topics"][0]["records_per_s"] is None
    now = 110.0
    lag = PartitionLag(3000, {2: 7}, {2: 1.5})
    found = view.update(ClusterSample({KEY: 110}, {KEY: lag}, {KEY: 1}, {"billing": {KEY: 60}}))
    assert found["topics"] == [
        {
            "topic": "orders",
            "partitions": 1,
            "offline": 0,
            "size": 3000,
            "records_per_s": 10.0,
            "bytes_per_s": 200,
            "replica_lag": 7,
            "replica_lag_s": 1.5,
        }
    ]
    assert found["groups"] == [{"group": "billing", "topic": "orders", "lag": 50, "lag_s": 5.0}]


def test_a_partition_without_a_commit_counts_from_its_first_record() -> None:
    other, third = ("orders", 1), ("orders", 2)
    leaders = {KEY: 1, other: 1, third: 1}
    commits = {"billing": {KEY: 60}}
    ends, starts = {KEY: 110, other: 3400, third: 7}, {other: 400}
    found = TopView(lambda: 1.0).update(ClusterSample(ends, {}, leaders, commits, starts))
    assert [group["lag"] for group in found["groups"]] == [3050]


def test_long_names_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "a" * 200 + ".end"
    row = {"topic": long, "partitions": 1, "offline": 0, "size": 1, "records_per_s": 1, "bytes_per_s": 1}
    groups = [{"group": long, "topic": "t", "lag": 1, "lag_s": 0}]
    _show({"topics": [row, {**row, "topic": "orders"}], "groups": groups})
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) < 130
    assert "aaa.end" in shown


def test_lags_come_from_leaders_and_else_from_followers() -> None:
    def answer(partition: DescribeLogDirsPartition) -> DescribeLogDirsResponse:
        topic = DescribeLogDirsTopic(name="orders", partitions=[partition])
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=[topic])])

    lags = [FollowerLag(broker_id=2, records=5, milliseconds=2500)]
    leader = answer(DescribeLogDirsPartition(partition_size=100, follower_lags=lags))
    follower = answer(DescribeLogDirsPartition(partition_size=90, offset_lag=4))
    assert partition_lags({1: leader, 2: follower, 3: None}) == {
        KEY: PartitionLag(100, {2: 5}, {2: 2.5}),
    }
    assert partition_lags({2: follower}) == {KEY: PartitionLag(90, {2: 4})}


def test_a_refresh(penstock: Command) -> None:
    assert penstock("topic", "create", "watched").returncode == 0
    done = penstock("top", "--once", "--interval", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    (topic,) = [each for each in json.loads(done.stdout)["topics"] if each["topic"] == "watched"]
    assert (topic["records_per_s"], topic["replica_lag"]) == (0.0, 0)
    shown = penstock("top", "--once", "--interval", "0.1").stdout
    assert "records per s" in shown
    (described,) = json.loads(penstock("topic", "describe", "watched", "--json").stdout)
    assert [(p["size"], p["lag"]) for p in described["partitions"]] == [(0, {})]
