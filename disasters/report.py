"""The table of results: for the terminal, as JSON, and as the table in docs/storage.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from disasters.catalogue import Disaster
from disasters.judge import Examination, Result, Verdict

__all__ = ["cell", "head", "line", "load", "markdown", "publish", "save", "summary"]

_HEAD = f"{'disaster':28} {'acked':>6} {'read':>6} {'lost':>6} {'s':>5}  verdict"


def line(result: Result) -> str:
    """Returns one line of the terminal's table."""
    last = result.last
    lost = f"{last.lost}" + (f"+{last.commits_lost}c" if last.commits_lost else "")
    notes = "; ".join(_notes(result))
    return (
        f"{result.name:28} {last.acknowledged:6} {last.read:6} {lost:>6} {result.seconds:5.0f}  "
        f"{result.verdict.value}{f' ({notes})' if notes else ''}"
    )


def head() -> str:
    return _HEAD


def _notes(result: Result) -> list[str]:
    last = result.last
    notes = [f"{last.wrong} wrong"] if last.wrong else []
    if last.unreadable:
        notes.append(f"{last.unreadable} unreadable")
    if last.commits_lost:
        notes.append(f"{last.commits_lost} committed offsets lost")
    notes += [f"broker {node} lacks {count}" for node, count in last.lacking.items()]
    if last.refused:
        notes.append(f"brokers {last.refused} ended")
    return [*notes, *last.complaints]


def cell(result: Result | None) -> str:
    """Returns the text of a result in a column of the published table."""
    if result is None:
        return "not run"
    last = result.last
    match result.verdict:
        case Verdict.LOST:
            parts = [f"{last.lost:,} of {last.acknowledged:,} records"] if last.lost else []
            parts += [f"{last.commits_lost} committed offsets"] if last.commits_lost else []
            return f"**lost** {' and '.join(parts)}"
        case Verdict.WRONG:
            return f"**wrong data**: {last.wrong:,} records"
        case Verdict.UNREADABLE:
            return f"**unreadable** {last.unreadable:,} of {last.acknowledged:,} records"
        case Verdict.STUCK:
            return "kept, **stuck**"
        case Verdict.HURT:
            return "kept, **hurt**"
        case _:
            return str(result.verdict.value)


def _cell_of(disaster: Disaster, result: Result | None) -> str:
    """As `cell`; a disaster that only one kind of broker can have is not missing for the other."""
    return "does not apply" if result is None and len(disaster.systems) == 1 else cell(result)


def markdown(disasters: Iterable[Disaster], columns: Mapping[str, Sequence[Result]]) -> str:
    """Returns a table of these disasters for the documentation, with a column per kind of broker."""
    found = {name: {r.name: r for r in results} for name, results in columns.items()}
    lines = [f"| disaster | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for disaster in disasters:
        cells = [_cell_of(disaster, found[name].get(disaster.name)) for name in columns]
        lines.append(f"| {disaster.done} | {' | '.join(cells)} |")
    return "\n".join(lines)


def publish(page: str, tables: Mapping[str, str]) -> str:
    """Returns the page with each table between its marks, `<!-- name -->` and `<!-- end name -->`."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end {name} -->"
        head, _, rest = page.partition(begin)
        _, mark, tail = rest.partition(end)
        assert mark, f"the page has no marks for {name}"
        page = head + begin + table + end + tail
    return page


def summary(results: Sequence[Result]) -> str:
    """Returns the closing line."""
    failed = sum(not r.verdict.is_good and r.verdict is not Verdict.SKIPPED for r in results)
    skipped = sum(r.verdict is Verdict.SKIPPED for r in results)
    lost = sum(result.last.lost for result in results)
    passed = len(results) - failed - skipped
    return f"{passed} passed, {failed} failed, {skipped} skipped; {lost} acknowledged records lost"


def save(results: Sequence[Result], path: Path) -> None:
    """Writes the results; those of other disasters that the file already has stay."""
    kept = {result.name: result for result in (load(path) if path.exists() else [])}
    kept |= {result.name: result for result in results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([_plain(result) for result in kept.values()], indent=1) + "\n")


def _plain(result: Result) -> dict[str, Any]:
    """Returns a result as stored in a file: without log lines, which name paths of this machine."""
    plain = {**asdict(result), "verdict": result.verdict.name, "seconds": round(result.seconds, 1)}
    del plain["said"]
    return plain


def load(path: Path) -> list[Result]:
    return [_result(found) for found in json.loads(path.read_text())]


def _result(found: dict[str, Any]) -> Result:
    first = found["first"] and _examination(found["first"])
    last = _examination(found["last"])
    return Result(found["name"], found["done"], Verdict[found["verdict"]], found["seconds"], last, first)


def _examination(found: dict[str, Any]) -> Examination:
    lacking = {int(node): count for node, count in found["lacking"].items()}
    lists = {key: tuple(found[key]) for key in ("refused", "complaints")}
    return Examination(**{**found, **lists, "lacking": lacking})
