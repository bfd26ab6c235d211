"""The compose file: it parses, its commands and configs exist, and its parts refer to each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from penstock import __version__
from penstock.cli.config_sources import effective
from penstock.model.config import BrokerConfig
from tests.deploy.command_lines import parsed

FOLDER: Final = Path(__file__).parents[2] / "deploy/compose"
COMPOSE: Final = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: Final[dict[str, Any]] = COMPOSE["services"]
BROKERS: Final = ("broker-1", "broker-2", "broker-3")
OURS: Final = (*BROKERS, "console")


def config_of(name: str, monkeypatch: pytest.MonkeyPatch) -> BrokerConfig:
    """The config with which a broker starts."""
    for variable in [each for each in os.environ if each.startswith("PENSTOCK_")]:
        monkeypatch.delenv(variable)
    for variable, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(variable, value)
    given = parsed(SERVICES[name]["command"])
    flags = {"node.id": str(given["id_"]), "penstock.insecure.listeners.allow": "true"}
    assert str(given["config"]) == "/etc/penstock/broker.yaml"
    return BrokerConfig(effective(FOLDER / "broker.yaml", flags, given["settings"])[1])


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_this_version_without_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["image"] == f"localhost/penstock:{__version__}"
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert parsed(service["command"])["allow_insecure"]


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_a_voter_at_the_address_that_the_others_know(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(name, monkeypatch)
    number = name.rpartition("-")[2]
    assert f"{number}@{name}:19092" in str(config["controller.quorum.voters"]).replace("'", "").strip("[]")
    assert config.node_id == int(number)
    assert f"{name}:/var/lib/penstock" in SERVICES[name]["volumes"]
    assert list(config.data_dirs) == ["/var/lib/penstock/data"]


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_probed_at_its_monitoring_port(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SERVICES[name]["healthcheck"]["test"]
    assert words[:4] == ["CMD", "/usr/local/bin/python3", "-m", "penstock"]
    assert parsed(words[4:])["url"] == "http://127.0.0.1:9404/readyz"
    assert config_of(name, monkeypatch)["penstock.metrics.listener"] == "0.0.0.0:9404"


def test_ports_are_published_on_loopback_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_volumes_and_configs_exist() -> None:
    for service in SERVICES.values():
        assert {each.partition(":")[0] for each in service.get("volumes", ())} <= COMPOSE["volumes"].keys()
        assert {each["source"] for each in service.get("configs", ())} <= COMPOSE["configs"].keys()
    for each in COMPOSE["configs"].values():
        assert (FOLDER / each["file"]).is_file()


def test_prometheus_scrapes_every_broker() -> None:
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:9404" for name in BROKERS]
