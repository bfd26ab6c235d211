"""`penstock up`: it says when it is ready, ends on a signal, and says in one line why it cannot start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.cli.running import PENSTOCK, WAIT_S, run, running_broker

pytestmark = pytest.mark.process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_is_the_only_line_and_a_signal_ends_it_with_0(number: signal.Signals, tmp_path: Path) -> None:
    with running_broker("--data", str(tmp_path / "data")) as (process, address):
        assert address.startswith("127.0.0.1:")
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=WAIT_S).close()
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert process.wait(WAIT_S) == 0
    assert (tmp_path / "data").is_dir()


def test_a_broker_serves_after_its_start_command_has_timed_out() -> None:
    """As after `penstock broker start 1 --timeout 2` of the first voter of three."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [*PENSTOCK, "up", "--port", "0", "--memory"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    try:
        assert process.stderr is not None
        await_event("monitoring_started", process.stderr)
        await_event("started", process.stderr)
        process.terminate()
        assert "event=stopped" in process.stderr.read()
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_voter_that_waits_for_the_others_ends_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as others:
        quorum = f"1@127.0.0.1:0,2@127.0.0.1:{others.getsockname()[1]}"
        listeners = "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"
        settings = ("--set", f"listeners={listeners}", "--set", f"controller.quorum.voters={quorum}")
        process = subprocess.Popen(
            [*PENSTOCK, "up", "--data", str(tmp_path), *settings, "--set", "broker.session.timeout.ms=100"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            started = await_event("monitoring_started", process.stderr)
            waiting = await_event("waiting_for_majority", process.stderr)
            assert "seen=[] not_seen=[2]" in waiting
            with pytest.raises(HTTPError) as not_ready:
                urlopen(f"{started.partition('address=')[2].split()[0]}/readyz", timeout=WAIT_S)
            with not_ready.value as answer:
                assert answer.code == 503 and "not registered" in answer.read().decode()
            process.send_signal(number)
            assert process.wait(WAIT_S) == 0
            assert process.communicate()[1].endswith("event=stopped_before_ready node_id=1\n")
        finally:
            process.kill()
            process.communicate()


def test_acknowledged_records_survive_a_restart(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    with running_broker(*data) as (process, address):
        assert run("produce", "kept", input="one\ntwo\n", bootstrap=address).returncode == 0
        process.terminate()
        assert process.wait(WAIT_S) == 0
    with running_broker(*data) as (_, address):
        read = run("consume", "kept", "--from-beginning", "--exit-at-end", bootstrap=address)
        assert read.stdout == "one\ntwo\n"


def test_logs_are_one_json_object_per_line(tmp_path: Path) -> None:
    with running_broker("--memory", "--log-format", "json", "--log-level", "debug") as (process, _):
        process.terminate()
        _, errors = process.communicate(timeout=WAIT_S)
    for line in errors.splitlines():
        assert {"event", "level", "timestamp", "component"} <= json.loads(line).keys()


def test_logs_are_for_people_on_a_terminal(tmp_path: Path) -> None:
    main, terminal = os.openpty()
    with subprocess.Popen(
        [*PENSTOCK, "up", "--port", "0", "--memory"], stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.terminate()
        assert process.wait(WAIT_S) == 0
    os.close(terminal)
    written = os.read(main, 100_000).decode()
    os.close(main)
    assert "started" in written
    assert "event=" not in written


@pytest.mark.parametrize("setting", ["log.retention.hour=5", "storage.retention_tim=5"])
def test_a_setting_in_place_of_a_config_file_is_explained(setting: str) -> None:
    done = run("up", "--config", setting)
    assert done.returncode == 2
    assert f"--config names a file; a config is set with --set {setting}" in done.stderr
    assert "did you mean" in done.stderr


def test_starts_and_stops_are_logged_with_the_results_of_recovery(tmp_path: Path) -> None:
    started, stopped = events_of_a_life(tmp_path, produce=True, end=signal.SIGTERM)
    assert (started["event"], stopped["event"]) == ("started", "stopped")
    assert (started["node_id"], started["partitions"], started["clean"]) == (1, 0, True)
    assert str(started["address"]).startswith("127.0.0.1:")

    (started,) = events_of_a_life(tmp_path, produce=False, end=signal.SIGKILL)
    assert (started["partitions"], started["clean"], started["bytes_walked"]) == (1, True, 0)

    with (tmp_path / "topics" / "t" / "partition-0" / f"{0:020d}.log").open("ab") as segment:
        segment.write(b"torn")
    recovered, started, _ = events_of_a_life(tmp_path, produce=False, end=signal.SIGTERM)
    assert (recovered["event"], recovered["partition"], recovered["bytes_cut"]) == ("recovered", "t-0", 4)
    assert (started["clean"], started["bytes_cut"]) == (False, 4)
    assert cast(int, started["bytes_walked"]) > 0


def await_event(event: str, log: Iterable[str]) -> str:
    """Read up to a line with the event and return it. Others may come before it on a slow machine."""
    found = next((line for line in log if f"event={event} " in line), None)
    assert found is not None, f"nothing has logged {event}"
    return found


def events_of_a_life(data: Path, *, produce: bool, end: signal.Signals) -> list[dict[str, object]]:
    """What a broker logs that may be sent a message, and then a signal."""
    with running_broker("--data", str(data), "--log-format", "json") as (process, address):
        assert process.stderr is not None
        events = [json.loads(process.stderr.readline())]
        while events[-1]["event"] != "started":  # a thread writes the log, perhaps behind the ready line
            events.append(json.loads(process.stderr.readline()))
        if produce:
            assert run("produce", "t", input="x\n", bootstrap=address).returncode == 0
        process.send_signal(end)
        events += map(json.loads, process.stderr)
        process.wait(WAIT_S)
    # A machine that stands still for a moment is worth a line, too.
    others = ("controller_was_held_up", "monitoring_started", "request_slow")
    return [event for event in events if event["event"] not in others]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broker.yaml", "num.partitions: 3\nlog:\n  retention.hours: 24\n"),
        ("server.properties", "num.partitions=3\nlog.retention.hours=24\n"),
    ],
)
def test_config_files_and_settings(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    with running_broker("--memory", "--config", str(file), "--set", "node.id=7") as (_, address):
        shown = run("config", "describe", "--broker", "7", "--json", bootstrap=address)
        values = {entry["name"]: entry["value"] for entry in json.loads(shown.stdout)}
    assert values["num.partitions"] == "3"
    assert values["log.retention.hours"] == "24"
    assert values["node.id"] == "7"


def test_flags_go_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(
        "broker: {id: 3}\nstorage: {segment_size: 2MB, retention_time: 7d}\nnum.partitions: 1\n"
        "performance: {linger_time: 5ms}\ntopics: {declared: {partitions: 4}}\n"
        "ssl.key.password: unspoken\n"
    )
    file.chmod(0o644)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(file))
    monkeypatch.setenv("PENSTOCK_STORAGE_SEGMENT_SIZE", "4MB")
    monkeypatch.setenv("PENSTOCK_NUM_PARTITIONS", "2")
    with running_broker("--memory", "--id", "0", "--set", "num.partitions=3") as (process, address):
        shown = run("config", "describe", "--broker", "0", "--json", bootstrap=address)
        topics = run("topic", "list", "--json", bootstrap=address)
        process.terminate()
        _, errors = process.communicate(timeout=WAIT_S)
    values = {entry["name"]: entry["value"] for entry in json.loads(shown.stdout)}
    assert values["num.partitions"] == "3"
    assert values["log.segment.bytes"] == str(4 * 1024**2)
    assert values["log.retention.ms"] == str(7 * 86_400_000)
    assert values["node.id"] == values["broker.id"] == "0"
    assert json.loads(topics.stdout) == [{"topic": "declared", "partitions": 4, "replicas": 1}]
    assert "setting_refused name=performance.linger_time" in errors
    assert "config_file_readable" in errors and "secrets=ssl.key.password" in errors
    assert "unspoken" not in errors


def fails(*arguments: str) -> tuple[int, str]:
    done = run("up", *arguments)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()[-1]


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = fails("--port", str(port), "--data", str(tmp_path))
    assert code == 1
    assert said.startswith(f"penstock: 127.0.0.1:{port} is in use")


def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, said = fails("--port", "0", "--data", str(file / "data"))
    assert code == 1
    assert "--data" in said


def test_a_data_directory_that_another_broker_uses(tmp_path: Path) -> None:
    with running_broker("--data", str(tmp_path)):
        code, said = fails("--port", "0", "--data", str(tmp_path))
    assert code == 1
    assert str(tmp_path) in said


def test_a_host_that_is_not_here() -> None:
    code, said = fails("--memory", "--port", "0", "--host", "192.0.2.1", "--allow-insecure")
    assert code == 1
    assert "--host" in said


def test_other_machines_are_not_served_without_security_by_default() -> None:
    code, said = fails("--memory", "--port", "0", "--host", "0.0.0.0")
    assert code == 2
    assert "PLAINTEXT://0.0.0.0:0 would serve any machine" in said
    assert "--allow-insecure" in said


def test_bad_configs(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("num.partition: 3\n")
    assert fails("--config", str(file)) == (
        2,
        f"penstock: {file}: Unknown broker config name: num.partition; did you mean num.partitions?",
    )
    assert fails("--config", str(tmp_path / "none"))[0] == 2
    assert "did you mean storage.segment_size?" in fails("--set", "storage.segment_sise=1GB")[1]
    code, said = fails("--set", "num.partitions=many")
    assert code == 2
    assert "num.partitions" in said


def test_the_command_line_alone_loads_nothing_heavy() -> None:
    heavy = {"confluent_kafka", "uvloop", "rich", "structlog", "penstock.broker", "penstock.storage"}
    code = f"import sys, penstock.cli.app; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S)
    assert done.stdout == "[]\n"


def test_a_broker_loads_no_library_that_its_start_does_not_need() -> None:
    """Each module of ours takes a quarter of a millisecond and 20 KB of memory."""
    heavy = {
        "confluent_kafka",
        "cryptography",
        "obstore",
        "pyarrow",
        "pydantic",
        "rich.console",
        "sqlite3",
        "yaml",
    }
    code = (
        "import sys, penstock.cli.app, penstock.cli.commands.up\n"
        "sys.modules.setdefault('rich', None)\n"
        "import penstock.broker.app.server\n"
        f"print(sorted({heavy!r} & sys.modules.keys()))\n"
        "print(sum(name.startswith('penstock.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S)
    found, modules = done.stdout.splitlines()
    assert found == "[]"
    assert int(modules) <= 800
