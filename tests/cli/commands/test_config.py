"""Configs of topics, brokers and groups through the command, against a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import alteration
from penstock.cli.option_groups import Connection
from tests.cli.running import Command, lines, run_here


def test_topic_configs(penstock: Command) -> None:
    penstock("topic", "create", "configured")
    whose = ("--topic", "configured")
    done = penstock("config", "set", *whose, "retention.ms=7", "cleanup.policy=compact,delete")
    assert (done.returncode, lines(done.stdout)) == (
        0,
        ["set retention.ms=7", "set cleanup.policy=compact,delete"],
    )
    shown = json.loads(penstock("config", "describe", *whose, "--json").stdout)
    of_the_topic, of_all_brokers = "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert {(entry["name"], entry["value"], entry["source"]) for entry in shown} == {
        ("retention.ms", "7", of_the_topic),
        ("cleanup.policy", "compact,delete", of_the_topic),
        ("min.insync.replicas", "1", of_all_brokers),
    }
    assert penstock("config", "unset", *whose, "retention.ms", "cleanup.policy").returncode == 0
    (left,) = json.loads(penstock("config", "describe", *whose, "--json").stdout)
    assert left["name"] == "min.insync.replicas"
    everything = penstock("config", "describe", *whose, "--all").stdout
    assert "segment.bytes" in everything
    refused = penstock("config", "set", *whose, "retention.ms=soon")
    assert refused.returncode == 1
    assert "retention.ms" in refused.stderr


def test_broker_configs(penstock: Command) -> None:
    assert penstock("config", "set", "--broker", "1", "message.max.bytes=2000000").returncode == 0
    shown = json.loads(penstock("config", "describe", "--broker", "1", "--json").stdout)
    (entry,) = [entry for entry in shown if entry["name"] == "message.max.bytes"]
    assert (entry["value"], entry["source"]) == ("2000000", "DYNAMIC_BROKER_CONFIG")
    assert penstock("config", "unset", "--broker", "1", "message.max.bytes").returncode == 0
    refused = penstock("config", "set", "--broker", "1", "node.id=2")
    assert refused.returncode == 1
    assert "node.id" in refused.stderr


def test_configs_of_all_brokers(penstock: Command) -> None:
    before = json.loads(penstock("config", "describe", "--all-brokers", "--json").stdout)
    assert [entry["name"] for entry in before] == ["min.insync.replicas"]
    done = penstock("config", "set", "--all-brokers", "message.max.bytes=2000000")
    assert (done.returncode, done.stdout) == (0, "set message.max.bytes=2000000\n")
    (entry, *others) = json.loads(penstock("config", "describe", "--all-brokers", "--json").stdout)
    assert others == before
    assert (entry["name"], entry["value"]) == ("message.max.bytes", "2000000")
    of_one = json.loads(penstock("config", "describe", "--broker", "1", "--json").stdout)
    assert entry in of_one
    assert entry["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    refused = penstock("config", "set", "--all-brokers", "node.id=2")
    assert (refused.returncode, "node.id" in refused.stderr) == (1, True)
    assert penstock("config", "unset", "--all-brokers", "message.max.bytes").returncode == 0
    assert json.loads(penstock("config", "describe", "--all-brokers", "--json").stdout) == before
    assert penstock("config", "unset", "--all-brokers", "min.insync.replicas").returncode == 1
    assert penstock("config", "describe", "--all-brokers", "--broker", "1").returncode == 2


def test_a_broker_that_there_is_not(penstock: Command) -> None:
    for refused in (
        penstock("config", "describe", "--broker", "7"),
        penstock("config", "set", "--broker", "7", "message.max.bytes=2000000"),
    ):
        assert (refused.returncode, refused.stderr) == (1, "penstock: no broker 7: the cluster has 1\n")


def test_group_configs(penstock: Command) -> None:
    assert penstock("config", "set", "--group", "g", "consumer.session.timeout.ms=50000").returncode == 0
    (entry,) = json.loads(penstock("config", "describe", "--group", "g", "--json").stdout)
    assert (entry["name"], entry["value"]) == ("consumer.session.timeout.ms", "50000")
    assert penstock("config", "unset", "--group", "g", "consumer.session.timeout.ms").returncode == 0
    assert (
        penstock("config", "describe", "--group", "g").stderr
        == "all configs have their defaults: --all shows them\n"
    )
    requested_twice = penstock("config", "describe", "--group", "g", "--topic", "t")
    assert requested_twice.returncode == 2


def test_an_unknown_broker_config_is_stored_with_a_warning(penstock: Command) -> None:
    done = penstock("config", "set", "--all-brokers", "log.retention.hour=5")
    assert (done.returncode, done.stdout) == (0, "set log.retention.hour=5\n")
    assert done.stderr.startswith(
        "penstock: warning: Unknown broker config name: log.retention.hour; did you mean log.retention.hours?"
    )
    assert penstock("config", "unset", "--all-brokers", "log.retention.hour").stderr == ""
    known = penstock("config", "set", "--all-brokers", "log.retention.ms=5000")
    assert (known.returncode, known.stderr) == (0, "")
    assert penstock("config", "unset", "--all-brokers", "log.retention.ms").returncode == 0


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The values that commands send to brokers, which are none."""
    found: list[dict[str, str]] = []

    def alter(cluster: Any, resource: Any, values: dict[str, str], removed: Any = ()) -> None:
        found.append(values)

    monkeypatch.setattr(alteration, "alter_configs", alter)
    monkeypatch.setattr(Connection, "cluster", lambda connection: None)
    return found


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.tls.ssl.keystore.key"])
def test_a_secret_is_no_argument_and_is_not_printed(
    name: str,
    options: list[str],
    altered: list[dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ("config", "set", "--broker", "1", *options)
    assert run_here(*command, f"{name}=hunter2") == 2
    assert (altered, "hunter2" in "".join(capsys.readouterr())) == ([], False)
    (tmp_path / "secret").write_text("hunter2\n")
    monkeypatch.setenv("THE_SECRET", "hunter2")
    for value in (f"${{file:{tmp_path / 'secret'}}}", "${env:THE_SECRET}"):
        altered.clear()
        assert run_here(*command, f"{name}={value}", "message.max.bytes=2000") == 0
        assert altered == [{name: "hunter2", "message.max.bytes": "2000"}]
        output = "".join(capsys.readouterr())
        assert ("hunter2" in output, "[hidden]" in output, "2000" in output) == (False, True, True)
    assert run_here(*command, f"{name}=${{file:{tmp_path / 'none'}}}") != 0
    assert "which cannot be read" in capsys.readouterr().err


def test_only_secrets_are_read_from_elsewhere(
    altered: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Other values with such a text are stored as they are, as they were before."""
    assert run_here("config", "set", "--broker", "1", "some.plugin=${env:THE_SECRET}") == 0
    assert altered == [{"some.plugin": "${env:THE_SECRET}"}]
    assert "set some.plugin=${env:THE_SECRET}" in capsys.readouterr().out
