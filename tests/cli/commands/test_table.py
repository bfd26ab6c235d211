"""`penstock table` without Spark: definitions, and one line for what cannot be."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.tables.catalog import Catalog
from penstock.tables.definition import encoded
from penstock.testing import broker
from tests.cli.running import run_here

CREATE = ["create", "x", "--topic", "orders", "--to", "x"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = [NewTopic("orders", 1), NewTopic("people", 1, config={"cleanup.policy": "compact"})]
        for made in admin.create_topics(topics).values():
            made.result()
        yield running.bootstrap


@pytest.fixture(autouse=True)
def environment(bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)
    monkeypatch.chdir(tmp_path)


def test_a_table_is_created_listed_described_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here("table", "create", "orders", "--topic", "orders", "--to", "lake/orders") == 0
    assert run_here("table", "create", "people", "--topic", "people", "--to", "lake/people") == 0
    assert "orders: append table of orders at " in capsys.readouterr().out
    assert run_here("table", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(row["table"], row["mode"], row["to"]) for row in listed] == [
        ("orders", "append", f"{tmp_path}/lake/orders"),
        ("people", "upsert", f"{tmp_path}/lake/people"),
    ]
    assert run_here("table", "describe", "people") == 0
    shown = capsys.readouterr()
    assert "mode: upsert\n" in shown.out and "buckets: 16\n" in shown.out and "rows: 0\n" in shown.out
    assert "no values have brought columns yet" in shown.err
    assert run_here("table", "describe", "orders", "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"]["dead_letters"] == 0
    assert run_here("table", "delete", "orders", "--yes") == 0
    assert (tmp_path / "lake" / "orders" / "_delta_log").exists()
    assert run_here("table", "delete", "people", "--data", "--yes") == 0
    assert not (tmp_path / "lake" / "people").exists()
    assert run_here("table", "list") == 0
    assert "there are no tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "a b", "--topic", "orders", "--to", "x"], "'a b' cannot be the name of a table"),
        (["create", "x", "--topic", "nowhere", "--to", "x"], "topic nowhere: "),
        (
            ["create", "x", "--topic", "orders", "--to", "s3://bucket"],
            "'s3://bucket' is not the place of a table",
        ),
        (
            [*CREATE, "--schema", "avro"],
            "--schema 'avro' is not infer",
        ),
        (
            [*CREATE, "--schema", "json:none"],
            "cannot read --schema json:none",
        ),
        ([*CREATE, "--schema", "registry"], "pass --registry URL"),
        (
            [*CREATE, "--format", "iceberg"],
            "--format 'iceberg' is not delta",
        ),
        (
            [*CREATE, "--mode", "merge"],
            "--mode 'merge' is not append or",
        ),
        (
            [*CREATE, "--registry", "http://ada:s3cret@r.example"],
            "set basic.auth.user.info in `penstock table run --registry-config`",
        ),
        ([*CREATE, "--key", "json"], "--key 'json' is not text or"),
        (["run", "x"], "there is no table x"),
        (["describe", "x"], "there is no table x"),
        (["delete", "x"], "there is no table x"),
    ],
)
def test_bad_input_is_refused_with_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here("table", *arguments) != 0
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_place_with_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.txt").write_text("mine")
    assert run_here("table", "create", "x", "--topic", "orders", "--to", "mine") != 0
    assert "there are files in" in capsys.readouterr().err


def test_a_table_without_a_registry_has_no_credentials_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here("table", "create", "plain", "--topic", "orders", "--to", "lake/plain") == 0
    (tmp_path / "registry.properties").write_text("bearer.auth.token=secret\n")
    assert run_here("table", "run", "plain", "--registry-config", "registry.properties") != 0
    assert "no schema registry is used" in capsys.readouterr().err


@pytest.mark.parametrize("library", ["fastavro", "google"])
def test_tables_by_schemas_of_a_registry_need_its_libraries(
    library: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"by-{library}"
    create = ["create", name, "--topic", "orders", "--to", name, "--registry", "http://127.0.0.1:1"]
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, library, None)
        assert run_here("table", *create, "--key", "registry") != 0
        refused = capsys.readouterr().err
    assert run_here("table", *create, "--key", "registry") == 0
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, library, None)
        assert run_here("table", "run", name) != 0
        assert capsys.readouterr().err == refused
    assert "is missing: pip install 'penstock-mq[avro,protobuf]'" in refused
    assert len(refused.strip().splitlines()) == 1


def test_a_stored_definition_that_leads_elsewhere_deletes_nothing(
    tmp_path: Path, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here("table", "create", "good", "--topic", "orders", "--to", "lake/good") == 0
    catalog = Catalog(bootstrap)
    text = encoded(catalog.find("good"))
    catalog._write("bad", text.replace(b'"good"', b'"bad"', 1).replace(b"/lake/", b"/lake/../lake/"))
    capsys.readouterr()
    assert run_here("table", "delete", "bad", "--data", "--yes") != 0
    assert "leads through" in capsys.readouterr().err
    assert (tmp_path / "lake" / "good" / "_delta_log").exists()
    assert run_here("table", "list") == 0
    shown = capsys.readouterr()
    assert "good" in shown.out and "the stored definition of table bad cannot be used" in shown.err
    assert run_here("table", "delete", "bad", "--yes") == 0
    assert run_here("table", "delete", "good", "--data", "--yes") == 0
    left = catalog.stored()
    assert "good" not in left.definitions and left.unusable == {}
