"""The options of `penstock cluster roll`, and its progress. tests/rolling rolls real clusters."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.restarts import changed_configs, interpreter_in, program_in
from penstock.cli.cluster.rolling import RollOptions, _carry_out, _progress_so_far, _Task, roll
from penstock.cli.failure import Failure
from penstock.model.errors import InvalidConfig
from penstock.rolling.driver import RollStopped
from penstock.rolling.progress import Progress, encoded


async def nothing(broker: int) -> None:
    raise AssertionError("no broker is restarted")


def options(data: Path, **others: object) -> RollOptions:
    return RollOptions(data, "127.0.0.1:1", timeout_s=1.0)._replace(**others)  # type: ignore[arg-type]


def said(failure: pytest.ExceptionInfo[BaseException]) -> str:
    return str(failure.value)


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="has no cluster"):
        roll(options(tmp_path), print)


def test_brokers_of_a_supervisor_are_left_to_it(tmp_path: Path) -> None:
    BrokerHome(tmp_path, 1).write({"listeners": "PLAINTEXT://127.0.0.1:1"}, ())
    (tmp_path / "machine.yaml").write_text("number: 1\n")
    with pytest.raises(Failure, match="belong to `penstock up --cores`"):
        roll(options(tmp_path), print)


def test_a_command_names_the_broker(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"does not contain \{broker\}"):
        roll(options(tmp_path, command="systemctl restart penstock"), print)
    with pytest.raises(Failure, match="leave --upgrade-to and --config out"):
        roll(options(tmp_path, command="restart {broker}", config=tmp_path / "x.yaml"), print)


def test_a_command_that_fails_stops_the_roll_with_its_last_line() -> None:
    with pytest.raises(RollStopped) as stopped:
        asyncio.run(_carry_out(["sh", "-c", "echo first; echo no such unit >&2; exit 3"]))
    assert said(stopped).endswith("failed with exit code 3: no such unit")
    with pytest.raises(RollStopped, match="/no/such/program cannot be run: No such file or directory"):
        asyncio.run(_carry_out(["/no/such/program", "1"]))
    asyncio.run(_carry_out(["true"]))


def test_a_cluster_that_does_not_answer_is_not_touched(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    with pytest.raises(Failure, match="no broker answers") as stopped:
        roll(options(tmp_path, command="false {broker}", progress=progress), print)
    assert said(stopped).endswith("the same command continues when that is remedied")
    assert not progress.exists()


def test_the_same_roll_is_continued_and_another_one_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "roll.json"
    lines: list[str] = []
    task = _Task("127.0.0.1:1", "restart", nothing, file, True)
    assert _progress_so_far(task, lines.append) == Progress("restart") and not lines
    stopped = Progress("restart").finish(2).begin(3)
    file.write_text(encoded(stopped))
    assert _progress_so_far(task, lines.append) == stopped
    assert lines == ["continuing the roll that stopped; done: 2"]
    back = task._replace(change="upgrade to /opt/before/bin/python")
    assert _progress_so_far(back, lines.append) == Progress(back.change)
    assert lines[1:] == ["another roll has stopped; this one begins with all brokers"]
    file.write_text("{")
    assert _progress_so_far(task, lines.append) == Progress("restart")


def test_configs_of_single_brokers_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    home = BrokerHome(tmp_path, 1)
    home.write({"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:1", "log.dirs": str(tmp_path)}, ())
    file = tmp_path / "new.yaml"
    file.write_text("node.id: 7\n")
    with pytest.raises(Failure, match=r"node\.id differs between brokers"):
        changed_configs(file, [home])
    file.write_text("log.retention.ms: 5000\n")
    assert changed_configs(file, [home]) == {"log.retention.ms": "5000"}
    file.write_text("log.retention.ms: five\n")
    with pytest.raises(InvalidConfig, match=r"log\.retention\.ms"):
        changed_configs(file, [home])
    before = home.alter({"log.retention.ms": "5000"})
    assert home.configs["log.retention.ms"] == "5000" and home.configs["node.id"] == "1"
    home.restore(before)
    assert "log.retention.ms" not in home.configs


def test_an_environment_must_have_penstock(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="is no virtual environment"):
        interpreter_in(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/false")
    with pytest.raises(Failure, match="does not run Penstock"):
        program_in(interpreter_in(tmp_path))
    assert program_in(sys.executable).takes_log_file
