"""Frames and tables are imported without the libraries of schemas, which their extras do not have.

DuckDB is looked at by queries alone, so imports do with an empty module where it is not installed.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(sys.argv[1].split(",")):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Absent())
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
if find_spec("duckdb") is None:
    sys.modules["duckdb"] = ModuleType("duckdb")
for name in sys.argv[2].split(","):
    import_module(name)
import penstock
penstock.read
"""
_SCHEMAS = "google,fastavro"


@pytest.mark.process
@pytest.mark.parametrize(
    ("absent", "modules"),
    [
        (
            f"{_SCHEMAS},pyspark,deltalake,pandas",
            "penstock.frames,penstock.frames.sql,penstock.frames.duck,penstock.cli.commands.sql",
        ),
        (
            _SCHEMAS,
            "penstock.tables.job,penstock.spark.registry_types,penstock.spark.rows,penstock.cli.commands.table",
        ),
    ],
    ids=["frames", "tables"],
)
def test_imports_do_without_the_libraries_of_schemas(absent: str, modules: str) -> None:
    command = [sys.executable, "-c", _WITHOUT, absent, modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
