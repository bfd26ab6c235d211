"""Data directories of earlier versions: each is opened, and clients read what its own broker served."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import BrokerThread
from tools.golden.broker import settings
from tools.golden.reading import basics, everything

FOLDER = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def expectation(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


@contextmanager
def opened(name: str, data: Path) -> Iterator[BrokerThread]:
    """A broker of this version on a copy of the directory."""
    broker = BrokerThread(settings(data, expectation(name)["configs"]))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def unpack(name: str, folder: Path) -> Path:
    data = folder / "data"
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(data, filter="data")
    return data


def read(name: str, bootstrap: str) -> dict[str, Any]:
    found = basics(bootstrap) if expectation(name)["basic"] else everything(bootstrap)
    # Tuples and lists are the same in JSON.
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again


def test_each_released_version_has_its_directories() -> None:
    assert {"ee305a9", "0.1.0", "0.2.0", "0.2.0-encrypted"} <= set(NAMES)
    assert all((FOLDER / f"{name}.tar.xz").stat().st_size < 200_000 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_has_everything_that_its_version_could_write(name: str) -> None:
    read = expectation(name)["read"]
    plain, compacted = (read["topics"][topic]["partitions"] for topic in ("plain", "compacted"))
    assert [len(plain[index]["committed"]) for index in "012"] == [20, 20, 15], "five were deleted"
    assert len(compacted["0"]["committed"]) < 60, "of 200"
    assert all(len(each["committed"]) == 20 for each in read["topics"]["codecs"]["partitions"].values())
    for group in ("classic", "consumer"):
        assert ["plain", 0, 7, "seven"] in read["groups"][group]
    if expectation(name)["basic"]:
        return
    ledger, pending = (read["topics"][topic]["partitions"]["0"] for topic in ("ledger", "pending"))
    assert [each[3] for each in ledger["committed"]] == ["kept-1", "kept-3", "kept-5", "kept-7"]
    assert [each[3][:7] for each in ledger["not_committed"]] == ["aborted"] * 4
    assert (pending["committed"], pending["not_committed"][0][3]) == ([], "open")
    assert read["share_groups"]["workers"] == [["jobs", 0, 6]]
    assert all(len(read[part]) > 0 for part in ("acls", "users", "roles", "quotas"))
    encrypted = "penstock.encryption.keys" in expectation(name)["configs"]
    assert encrypted == name.endswith("-encrypted")


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_of_an_earlier_version_is_read_whole(name: str, tmp_path: Path) -> None:
    data = unpack(name, tmp_path)
    expected = expectation(name)["read"]
    for _ in ("as it was", "as this version has left it"):
        with opened(name, data) as broker:
            found = read(name, broker.bootstrap)
        for part, content in expected.items():
            assert found[part] == content, part
        assert found.keys() == expected.keys()
