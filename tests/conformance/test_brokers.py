"""Which cluster the tests get, and what happens to it when a broker is sick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from conformance.brokers import SCENARIOS, SECURED, Brokers
from lab.cluster import Cluster


@dataclass
class Patient:
    """A broker that is as well as the test says."""

    bootstrap: str
    well: bool = True
    alive: bool = True
    name: str = "broker"

    def healthy(self) -> bool:
        return self.well

    def runs(self) -> bool:
        return self.alive

    def log_tail(self, lines: int) -> str:
        return f"the last {lines} lines"


@dataclass
class Ward:
    """Every cluster that was started, and whether it runs."""

    started: list[FakeCluster] = field(default_factory=list)

    def start(self, folder: Path, settings: Mapping[str, str], brokers: int) -> Cluster:
        assert folder.is_dir()
        patients = [Patient(f"host:{n}") for n in range(1, brokers + 1)]
        self.started.append(FakeCluster(f"broker:{len(self.started)}", dict(settings), patients))
        return cast(Cluster, self.started[-1])

    @property
    def running(self) -> list[str]:
        return [cluster.bootstrap for cluster in self.started if cluster.running]


@dataclass
class FakeCluster:
    bootstrap: str
    settings: dict[str, str]
    brokers: list[Patient]
    running: bool = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False


@pytest.fixture
def ward() -> Ward:
    return Ward()


@pytest.fixture
def brokers(ward: Ward, tmp_path: Path) -> Iterator[Brokers]:
    with Brokers(ward.start, tmp_path) as brokers:
        yield brokers


def test_one_cluster_serves_all_tests_of_a_scenario(ward: Ward, brokers: Brokers) -> None:
    assert [brokers.bootstrap("default"), brokers.obituary(), brokers.bootstrap("default")] == [
        "broker:0",
        "",
        "broker:0",
    ]
    assert (len(ward.started[0].brokers), ward.started[0].settings) == SCENARIOS["default"]


def test_a_test_that_counts_on_one_broker_has_one(ward: Ward, brokers: Brokers) -> None:
    brokers.bootstrap("alone")
    assert len(ward.started[0].brokers) == 1


def test_another_scenario_ends_the_cluster_that_runs(ward: Ward, brokers: Brokers) -> None:
    brokers.bootstrap("default")
    assert brokers.bootstrap("noautocreate") == "broker:1"
    assert ward.running == ["broker:1"]
    assert ward.started[1].settings["auto.create.topics.enable"] == "false"


def test_a_scenario_with_certificates_or_tokens_has_clusters_of_its_own(ward: Ward, tmp_path: Path) -> None:
    other = Ward()
    with Brokers(ward.start, tmp_path, dict.fromkeys(SECURED, other.start)) as brokers:
        for scenario in ("default", *SECURED):
            brokers.bootstrap(scenario)
    assert (len(ward.started), len(other.started)) == (1, len(SECURED))


@pytest.mark.parametrize(("alive", "fate"), [(True, "stopped answering"), (False, "died")])
def test_a_sick_broker_gets_an_obituary_and_the_next_tests_a_fresh_cluster(
    ward: Ward, brokers: Brokers, alive: bool, fate: str
) -> None:
    brokers.bootstrap("default")
    ward.started[0].brokers[1] = Patient("host:2", well=False, alive=alive)
    assert brokers.obituary() == f"broker at host:2 {fate}: the last 8 lines"
    assert ward.running == []
    assert brokers.bootstrap("default") == "broker:1"
    assert ward.running == ["broker:1"]


def test_no_cluster_outlives_the_run(ward: Ward, tmp_path: Path) -> None:
    with Brokers(ward.start, tmp_path) as brokers:
        brokers.bootstrap("default")
        assert ward.running == ["broker:0"]
    assert ward.running == []
