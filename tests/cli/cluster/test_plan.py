"""A cluster is started again by what made it, and by nothing that says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.cluster.broker_home import homes_in
from penstock.cli.cluster.plan import ClusterPlan, check_same, make_homes, planned
from penstock.cli.failure import Failure

CONFIG = """
broker: {id: 7, port: 1, data_dir: /nowhere}
cluster: {bootstrap_servers: ["broker-1:9092", "broker-2:9092"]}
storage: {segment_size: 16MB, retention_time: 7d}
topics:
  gpu: {partitions: 8, retention_time: 30d}
"""
REQUESTED = ClusterPlan(brokers=3, host="::1", port=0, racks=("a", "b"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_the_command_that_made_a_cluster_starts_it_again(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_SEGMENT_SIZE", "8MB")
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "debug")
    plan = planned(REQUESTED, config, ["num.partitions=4"])
    made = make_homes(tmp_path, plan)
    assert made[0].configs["log.segment.bytes"] == str(8 * 1024**2)
    homes = homes_in(tmp_path)
    check_same(tmp_path, homes, plan)
    # Less is fine, and so is what the environment says now: it is read once.
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "info")
    check_same(tmp_path, homes, planned(REQUESTED, config, []))
    check_same(tmp_path, homes, planned(ClusterPlan(), None, []))
    port = int(homes[0].address.rpartition(":")[2])
    check_same(tmp_path, homes, ClusterPlan(port=port))


def test_a_secret_that_differs_is_not_shown(tmp_path: Path) -> None:
    key = "listener.name.plaintext.plain.sasl.jaas.config"
    homes = make_homes(tmp_path, ClusterPlan(brokers=1, port=0, configs={key: 'x required user_a="old";'}))
    plan = ClusterPlan(configs={key: 'x required user_a="new";'}, said=[key])
    with pytest.raises(Failure, match=rf"{key} is different in .*/broker-1/broker.yaml") as refused:
        check_same(tmp_path, homes, plan)
    assert "old" not in str(refused.value) and "new" not in str(refused.value)
    assert homes[0].config_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("plan", "setting", "said"),
    [
        (ClusterPlan(brokers=5), "", "has 3 brokers, not 5: `penstock broker add`"),
        (ClusterPlan(host="127.0.0.1"), "", r"is at \[::1\]:[0-9]+: leave --host and --port out"),
        (ClusterPlan(port=1), "", r"is at \[::1\]:[0-9]+: leave --host and --port out"),
        (ClusterPlan(racks=("a",)), "", "broker.rack is b in .*/broker-2/broker.yaml, not a: edit the"),
        (ClusterPlan(), "num.partitions=5", "num.partitions is 4 in .*/broker-1/broker.yaml, not 5"),
        (ClusterPlan(), "storage.retention_size=1GB", "log.retention.bytes is not set in .*, not 1073741824"),
    ],
)
def test_differences_from_the_running_cluster_are_named(
    tmp_path: Path, config: Path, plan: ClusterPlan, setting: str, said: str
) -> None:
    homes = make_homes(tmp_path, planned(REQUESTED, config, ["num.partitions=4"]))
    with pytest.raises(Failure, match=said) as refused:
        check_same(tmp_path, homes, planned(plan, None, [setting] if setting else []))
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("setting", ["node.id=7", "broker.port=1", "cluster.bootstrap_servers=h:1"])
def test_per_broker_configs_are_not_set_for_all_brokers(setting: str) -> None:
    with pytest.raises(Failure, match="is set per broker, from --brokers") as refused:
        planned(ClusterPlan(), None, [setting])
    assert refused.value.exit_code == 2


def test_an_invalid_topic_is_an_error_before_anything_is_created(config: Path) -> None:
    config.write_text("topics: {'gpu temperature': {}}\n")
    with pytest.raises(Failure, match="Topic name is invalid: 'gpu temperature' contains") as reported:
        planned(ClusterPlan(), config, [])
    assert reported.value.exit_code == 2


def test_a_topic_that_differs_is_named(tmp_path: Path, config: Path) -> None:
    homes = make_homes(tmp_path, planned(REQUESTED, config, []))
    config.write_text(CONFIG.replace("partitions: 8", "partitions: 9"))
    with pytest.raises(Failure, match=r"topic gpu is not declared like this in .*/broker-1/broker.yaml"):
        check_same(tmp_path, homes, planned(REQUESTED, config, []))


def test_brokers_may_count_from_0(tmp_path: Path) -> None:
    plan = planned(REQUESTED._replace(brokers=6, first_id=0), None, [])
    homes = make_homes(tmp_path, plan)
    assert [home.id for home in homes] == [0, 1, 2, 3, 4, 5]
    assert [home.configs["broker.rack"] for home in homes] == ["a", "b"] * 3
    voters = homes[0].configs["controller.quorum.voters"].split(",")
    assert [voter.partition("@")[0] for voter in voters] == ["0", "1", "2", "3", "4"]
    assert [home.configs["process.roles"] for home in homes[4:]] == ["broker,controller", "broker"]
    check_same(tmp_path, homes_in(tmp_path), plan)
    check_same(tmp_path, homes_in(tmp_path), plan._replace(first_id=None))
    with pytest.raises(Failure, match="count from 0: leave --first-id out"):
        check_same(tmp_path, homes_in(tmp_path), plan._replace(first_id=1))
