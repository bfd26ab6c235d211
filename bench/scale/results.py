"""The results of `make scale` in the repository, and the parts of docs/scaling.md that come from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from bench.scale.curves import PICTURES, curves
from bench.scale.report import table

__all__ = ["PAGE_PICTURES", "RESULTS", "Results", "controller_table", "keep", "load", "write_pictures"]

Results: TypeAlias = dict[int, dict[str, float]]
_ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = _ROOT / "bench" / "results" / "scale.json"
PAGE_PICTURES: Final = _ROOT / "docs" / "pictures"


def load(path: Path = RESULTS) -> Results:
    """The results of the controller by the number of partitions; none if there is no file."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {int(size): values for size, values in kept["controller"].items()}


def keep(results: Mapping[int, Mapping[str, float]], path: Path) -> None:
    """Write sizes that were measured; the file keeps its other sizes."""
    merged = load(path) | {size: dict(values) for size, values in results.items()}
    kept = {"controller": {str(size): merged[size] for size in sorted(merged)}}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def controller_table() -> str:
    """The table of the page."""
    return f"\n{table(load())}\n"


def write_pictures(folder: Path = PAGE_PICTURES) -> None:
    """Draw the growth of costs."""
    results = load()
    for picture in PICTURES:
        Path(folder, f"{picture.name}.svg").write_text(curves(picture, results), encoding="utf-8")
