"""The options of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.cli.failure import Failure
from penstock.cli.machine import running
from penstock.cli.machine.running import cores_of, run_machine
from penstock.model.config import effective_configs


def test_auto_is_all_cores_of_this_process() -> None:
    assert cores_of("auto") == len(os.sched_getaffinity(0))
    assert cores_of("3") == 3


@pytest.mark.parametrize("cores", ["0", "many", "-1"])
def test_a_wrong_number_of_cores_is_one_line(cores: str) -> None:
    with pytest.raises(Failure, match=f"--cores '{cores}' is neither a number from 1 nor auto") as caught:
        cores_of(cores)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("listener", "message"),
    [("https://127.0.0.1:9404", "has no TLS"), ("nonsense", "is not auto, HOST:PORT")],
)
def test_a_wrong_monitoring_port_is_one_line(listener: str, message: str, tmp_path: Path) -> None:
    configs = {"log.dirs": str(tmp_path / "data"), "penstock.metrics.listener": listener}
    with pytest.raises(Failure, match=message):
        run_machine(configs, 2, (), print)
    assert not (tmp_path / "data").exists()


def test_the_token_of_the_monitoring_port_may_be_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[str | None] = []

    async def run(machine: object, address: object, token: str | None, ready: object) -> None:
        tokens.append(token)

    monkeypatch.setattr(running, "_run", run)
    (tmp_path / "token").write_text("open sesame\n")
    given = {"log.dirs": str(tmp_path / "data"), "penstock.metrics.token": f"${{file:{tmp_path / 'token'}}}"}
    run_machine(effective_configs([{**given, "broker.port": "9092"}]), 1, (), print)
    assert tokens == ["open sesame"]
