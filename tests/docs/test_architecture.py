"""The pages about the architecture name every package and layer, in the order of the import contracts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "penstock"
ARCHITECTURE: Final = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BROKER: Final = (ROOT / "docs" / "internals" / "broker.md").read_text(encoding="utf-8")

#: packages whose pages have a row for each module, and these pages
PAGES: Final = {"net": "net.md", "security": "security.md", "model/config": "config.md"}


def contract(name: str) -> dict[str, Any]:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = (each for each in tables["tool"]["importlinter"]["contracts"] if each["name"] == name)
    return dict(found)


def layers() -> list[list[str]]:
    """The packages of each layer, the highest first."""
    return [
        [each.strip().removeprefix("penstock.") for each in layer.split("|")]
        for layer in contract("Layers")["layers"]
    ]


def pure() -> set[str]:
    sources = contract("Pure packages do no I/O and know no time")["source_modules"]
    return {source.removeprefix("penstock.") for source in sources}


def drawing() -> list[list[str]]:
    """The rows of the drawing, with the marks of its packages."""
    (text,) = re.findall(r"```text\n(┌.*?┘)\n```", ARCHITECTURE, re.DOTALL)
    return [line.strip("│ ").split() for line in text.splitlines() if line.startswith("│")]


def rows(page: str, header: str) -> list[list[str]]:
    """The cells of the rows of a table, by its header."""
    table = page.partition(f"{header}\n")[2].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[1:]]


def packages(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}


def test_the_drawing_has_the_layers_of_the_import_contract() -> None:
    assert [[name.removesuffix("°") for name in row] for row in drawing()] == layers()


def test_the_drawing_marks_the_packages_without_io() -> None:
    assert {name.removesuffix("°") for row in drawing() for name in row if name.endswith("°")} == pure()


def test_each_package_has_a_layer() -> None:
    assert packages(SOURCE) | {"ports"} == {name for layer in layers() for name in layer}


def test_the_table_has_each_package_in_the_order_of_the_layers() -> None:
    table = rows(ARCHITECTURE, "| package | content | I/O |")
    assert [row[0].strip("`") for row in table] == [name for layer in layers() for name in layer]
    assert {row[0].strip("`") for row in table if row[2] == "none"} == pure()


def test_the_page_about_the_broker_has_each_of_its_layers() -> None:
    table = rows(BROKER, "| package | owns |")
    order = contract("Layers inside the broker")["layers"]
    assert [row[0].strip("`") for row in table] == order
    assert set(order) == packages(SOURCE / "broker")


@pytest.mark.parametrize("package", PAGES)
def test_each_module_of_a_package_has_a_row_on_its_page(package: str) -> None:
    page = (ROOT / "docs" / "internals" / PAGES[package]).read_text(encoding="utf-8")
    modules = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert modules - set(re.findall(r"`([\w/]+\.py)`", page)) == set(), f"add a row to {PAGES[package]}"
