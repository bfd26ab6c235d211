"""The results of `make scale` in the repository, and the parts of docs/scaling.md that come from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from bench.scale.curves import PICTURES, curves
from bench.scale.report import shown, table

__all__ = [
    "CONTROLLER",
    "PAGE_PICTURES",
    "RESULTS",
    "Results",
    "brokers_table",
    "controller_table",
    "keep",
    "load",
    "write_pictures",
]

#: the parts of the file: the simulated controller, and brokers by the kind of the lab
CONTROLLER: Final = "controller"
_SYSTEMS: Final = {"penstock": "Penstock", "kafka": "Apache Kafka"}
Results: TypeAlias = dict[int, dict[str, float]]
_ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = _ROOT / "bench" / "results" / "scale.json"
PAGE_PICTURES: Final = _ROOT / "docs" / "pictures"


def load(path: Path = RESULTS, part: str = CONTROLLER) -> Results:
    """The results of a part by the number of partitions; none if there is no file."""
    return {int(size): values for size, values in _kept(path).get(part, {}).items()}


def keep(results: Mapping[int, Mapping[str, float]], path: Path, part: str = CONTROLLER) -> None:
    """Write sizes of a part that were measured; the file keeps its other sizes and parts."""
    kept, merged = _kept(path), load(path, part) | {size: dict(values) for size, values in results.items()}
    kept[part] = {str(size): merged[size] for size in sorted(merged)}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _kept(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    kept: dict[str, dict[str, dict[str, float]]] = {}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
    return kept


def controller_table() -> str:
    """The table of the controller's costs."""
    return f"\n{table(load())}\n"


def brokers_table(path: Path = RESULTS) -> str:
    """The table of the costs of brokers that run: a column for each system and number of partitions."""
    columns = {
        f"{_SYSTEMS[kind]}, {size:,}": values
        for kind in _SYSTEMS
        for size, values in sorted(load(path, kind).items())
    }
    names = dict.fromkeys(name for values in columns.values() for name in values)
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    for name in names:
        lines.append(f"| {name} | {' | '.join(shown(values.get(name)) for values in columns.values())} |")
    return "\n" + "\n".join(lines) + "\n"


def write_pictures(folder: Path = PAGE_PICTURES) -> None:
    """Draw the growth of costs."""
    results = load()
    for picture in PICTURES:
        Path(folder, f"{picture.name}.svg").write_text(curves(picture, results), encoding="utf-8")
