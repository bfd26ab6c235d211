"""The lag of groups survives a restart of the console, and a file that cannot be read harms nothing."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from starlette.testclient import TestClient

from penstock.console.views.lag_ring import RingState, decoded, encoded
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap

FILE = "lags.msgpack"
HOUR_S = 3600.0


@contextmanager
def a_console(bootstrap: str, folder: Path | None) -> Iterator[TestClient]:
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(bootstrap), hosts=["testserver"], timeout_s=20.0, history=folder
    )
    with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:
        yield client


@pytest.fixture
def group(bootstrap: str, console: TestClient, topic: str) -> str:
    """A group with a lag of two records."""
    for n in range(3):
        body = {"key": {"text": "k"}, "value": {"text": str(n)}, "headers": [], "partition": 0}
        assert console.post(f"/api/topics/{topic}/messages", json=body).status_code == 200
    name = f"group-of-{topic}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    return name


def series(client: TestClient, group: str) -> list[Any]:
    answer = client.get("/api/group", params={"name": group})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["series"])


def test_the_history_is_there_after_a_restart(bootstrap: str, group: str, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with a_console(bootstrap, folder) as first:
        before = series(first, group)
        assert before[0][1] == 2
    written = folder / FILE
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert [each.name for each in folder.iterdir()] == [FILE]
    an_hour_passes(written)
    with a_console(bootstrap, folder) as second:
        after = series(second, group)
        total = second.get("/api/overview").json()["series"]["lag"]
    assert [value for _, value in after] == [2, 2]
    assert after[0][0] == pytest.approx(before[0][0] - HOUR_S)
    assert total[0][0] == after[0][0]
    with a_console(bootstrap, None) as without:
        assert len(series(without, group)) == 1


def an_hour_passes(path: Path) -> None:
    """Make all points of a file an hour older."""
    state = decoded(path.read_bytes())

    def older(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(time_s - HOUR_S, value) for time_s, value in points]

    groups = {name: older(points) for name, points in state.groups.items()}
    path.write_bytes(encoded(RingState(state.version, state.cluster_id, older(state.total), groups)))


def test_a_file_that_cannot_be_read_is_kept_beside_a_new_one(
    bootstrap: str, group: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(b"damaged")
    with a_console(bootstrap, tmp_path) as client:
        assert series(client, group)[0][1] == 2
    assert "lags.msgpack" in caplog.text
    assert (tmp_path / f"{FILE}.unreadable").read_bytes() == b"damaged"
    assert group in decoded((tmp_path / FILE).read_bytes()).groups


def test_a_folder_that_cannot_be_used_is_logged(
    bootstrap: str, group: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    with a_console(bootstrap, tmp_path / "file") as client:
        assert series(client, group)
    assert (tmp_path / "file").read_text() == "no folder"
    assert "is not read, and not kept" in caplog.text
