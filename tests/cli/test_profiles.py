"""Profiles are clusters by name: added, listed, used by option and environment, removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import client_config
from penstock.cli.profiles import Profile, current, profiles_file, read_profiles
from tests.cli.running import run_here


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config" / "profiles.json"
    monkeypatch.setenv("PENSTOCK_PROFILES", str(file))
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    return file


def add(*arguments: str) -> int:
    return run_here("profile", "add", *arguments)


def test_a_profile_is_stored_for_its_user_alone(own_file: Path, tmp_path: Path) -> None:
    settings = tmp_path / "prod.properties"
    settings.write_text("security.protocol=PLAINTEXT\n")
    assert add("prod", "--bootstrap", "a:1,b:2", "--command-config", str(settings)) == 0
    assert read_profiles() == {"prod": Profile("a:1,b:2", str(settings))}
    assert own_file.stat().st_mode & 0o777 == 0o600
    assert add("prod", "--bootstrap", "c:3") == 1
    assert add("prod", "--bootstrap", "c:3", "--replace") == 0
    assert read_profiles() == {"prod": Profile("c:3", None)}
    assert run_here("profile", "remove", "prod") == 0
    assert run_here("profile", "remove", "prod") == 1
    assert read_profiles() == {}


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_profile_is_used(
    broker: str,
    by_environment: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = tmp_path / "prod.properties"
    settings.write_text("security.protocol=PLAINTEXT\nclient.note=from-profile\n")
    assert add("prod", "--bootstrap", broker, "--command-config", str(settings)) == 0
    if by_environment:
        monkeypatch.setenv("PENSTOCK_PROFILE", "prod")
    option = [] if by_environment else ["--profile", "prod"]
    assert run_here(*option, "topic", "create", "of-profile", "--if-not-exists") == 0
    assert client_config._settings()["client.note"] == "from-profile"
    assert current() == "prod"
    capsys.readouterr()
    assert run_here(*option, "profile", "list", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["profile"], row["in_use"], row["bootstrap"]) == ("prod", True, broker)


def test_bootstrap_overrides_a_profile(broker: str) -> None:
    assert add("dead", "--bootstrap", "127.0.0.1:1") == 0
    assert run_here("--profile", "dead", "topic", "list") == 1
    assert run_here("--profile", "dead", "topic", "list", "--bootstrap", broker) == 0
    assert run_here("topic", "list", "--bootstrap", broker) == 0
    assert current() is None


def test_two_clusters_at_once_are_refused(
    broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a command could delete topics of a cluster that the user did not mean."""
    assert add("prod", "--bootstrap", broker) == 0
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "127.0.0.1:1")
    assert run_here("--profile", "prod", "topic", "list") == 2
    assert "the profile prod and PENSTOCK_BOOTSTRAP name different brokers" in capsys.readouterr().err


def test_unknown_profiles_and_bad_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("--profile", "prod", "topic", "list") == 2
    assert "`penstock profile add` adds one" in capsys.readouterr().err
    assert add("a/b", "--bootstrap", "a:1") == 2
    assert add("a", "--bootstrap", "a:1", "--command-config", str(tmp_path / "missing")) == 2
    assert add("a", "--bootstrap", "a") == 2


@pytest.mark.parametrize("content", ["", "[]", '{"profiles": {"a": 1}}', '{"profiles": {"a": {}}}'])
def test_a_damaged_file_is_named_and_kept(
    own_file: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own_file.parent.mkdir()
    own_file.write_text(content)
    assert add("prod", "--bootstrap", "a:1") == 1
    assert f"{own_file} is not a file of profiles" in capsys.readouterr().err
    assert own_file.read_text() == content


def test_the_file_is_in_the_folder_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENSTOCK_PROFILES")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert profiles_file() == tmp_path / "penstock" / "profiles.json"
