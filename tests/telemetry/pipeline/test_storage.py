"""Files in a directory, by its path and by its URL; object stores by their options."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from penstock.jobs import delta
from penstock.jobs.storage import Store
from penstock.telemetry.pipeline.tables import TABLES, TEXT, Tables, encoded, timestamps, write_files

OPTIONS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-central-1"}


@pytest.fixture(params=["{}", "file://{}"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(request.param.format(tmp_path))


def test_files(store: Store) -> None:
    store.write("one.json", b"{}")
    store.write("one.json", b"[]")
    store.write_table("sub/two.arrow", pa.table({"a": [1, 2]}))
    store.write_batches("three.arrow", [pa.record_batch({"a": [number]}) for number in range(3)])
    assert [batch.to_pydict() for batch in store.read_batches("three.arrow", [2, 0])] == [
        {"a": [2]},
        {"a": [0]},
    ]
    store.delete("three.arrow")
    assert store.names("") == ["one.json", "sub"]
    assert store.names("sub") == ["two.arrow"]
    assert store.names("nowhere") == []
    assert store.read("one.json") == b"[]"
    assert store.read_table("sub/two.arrow").to_pydict() == {"a": [1, 2]}
    assert (store.exists("one.json"), store.exists("sub"), store.exists("three")) == (True, False, False)
    store.delete("one.json")
    store.delete("sub")
    assert store.names("") == []


def test_a_store_that_keeps_full_folders_is_asked_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As S3 servers over file systems do, when Arrow deletes a folder's object before those in it."""
    store.write("sub/deep/one", b"")
    store.write("sub/two", b"")
    files, taken = fs.LocalFileSystem(), ["sub/two", "sub/deep/one"]

    class Picky:
        """Deletes one file, and then says that the folder is not empty."""

        def __getattr__(self, name: str) -> Any:
            return getattr(files, name)

        def delete_dir(self, place: str) -> None:
            if not taken:
                files.delete_dir(place)
                return
            files.delete_file(store._path(taken.pop()))
            raise OSError("Directory object not empty")

    monkeypatch.setattr(store, "_files", Picky())
    store.delete("sub")
    assert store.names("") == []
    store.write("sub/two", b"")
    monkeypatch.setattr(Picky, "delete_dir", lambda *_: exec("raise OSError('read-only')"))
    with pytest.raises(OSError, match="read-only"):
        store.delete("sub")


def test_workers_reach_the_same_place(store: Store) -> None:
    store.write("one", b"1")
    assert pickle.loads(pickle.dumps(store)).read("one") == b"1"


def test_a_write_that_fails_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("before", b"")

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(pq, "write_table", fails)
    with pytest.raises(OSError, match="full"):
        store.write_parquet("never.parquet", pa.table({"a": [1]}))
    assert store.names("") == ["before"]


def test_texts_are_written_as_texts(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    table = pa.table({"text": pa.array(["x", None, "x"], TEXT), "number": [1.0, 2.0, 1.0]})
    size = store.write_parquet("t.parquet", table)
    found = pq.read_table(tmp_path / "t.parquet")
    assert size == (tmp_path / "t.parquet").stat().st_size
    assert found.schema.field("text").type == pa.string()
    assert found.to_pydict() == {"text": ["x", None, "x"], "number": [1.0, 2.0, 1.0]}
    assert encoded("samples").names == TABLES["samples"].names


def test_options_reach_all_clients_of_the_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []

    def opened(uri: str, *, storage_options: Any = None) -> object:
        reported.append((uri, storage_options))
        return object()

    monkeypatch.setattr(fs, "S3FileSystem", lambda **settings: reported.append(settings))
    monkeypatch.setattr(delta, "DeltaTable", opened)
    pickle.loads(pickle.dumps(Store("s3://bucket/fleet/", OPTIONS)))
    Tables("s3://bucket/fleet", OPTIONS).open("samples")
    settings = {"region": "eu-central-1", "scheme": "http", "endpoint_override": "127.0.0.1:9000"}
    assert reported == [settings, settings, ("s3://bucket/fleet/samples", OPTIONS)]


def test_a_store_is_reached_below_its_bucket() -> None:
    store = Store("s3://bucket/fleet", OPTIONS)
    assert store._path("samples/file") == "bucket/fleet/samples/file"
    assert store._files.region == "eu-central-1"


def test_a_table_of_an_older_version_gets_the_columns_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = pa.schema([each for each in TABLES["samples"] if each.name not in ("workload", "pod")])
    row = {"gpu_id": ["GPU-1"], "at": timestamps([0])}
    with monkeypatch.context() as patch:
        patch.setitem(TABLES, "samples", older)
        rows = pa.table([row.get(each.name, pa.nulls(1, each.type)) for each in older], schema=older)
        files = write_files(Store(str(tmp_path)), "samples", rows)
        Tables(str(tmp_path)).commit("samples", files, "query", 0)
    schema = TABLES["samples"]
    row |= {"workload": ["w"], "pod": ["p"]}
    rows = pa.table([row.get(each.name, pa.nulls(1, each.type)) for each in schema], schema=schema)
    tables = Tables(str(tmp_path))
    assert tables.commit("samples", write_files(Store(str(tmp_path)), "samples", rows), "query", 1)
    found = tables.open("samples").to_pyarrow_table(columns=["workload", "pod"]).to_pylist()
    assert sorted(found, key=repr) == [{"workload": "w", "pod": "p"}, {"workload": None, "pod": None}]
