"""Render the index of decisions in `adr/README.md`: the text between its `decisions` markers."""

from __future__ import annotations

from pathlib import Path

from docs import parts
from docs.parts import Parts, table

__all__ = ["KIND", "PAGE", "rendered", "write"]

KIND = "decisions"
PAGE = Path(__file__).parent / "adr" / "README.md"


def rendered(text: str) -> str:
    """The text of the page with a row for each record in its folder."""
    return parts.rendered(KIND, PARTS, text)


def write() -> None:
    parts.write(KIND, PARTS, (PAGE,))


def _index() -> str:
    return table(("number", "decision"), [_row(path) for path in sorted(PAGE.parent.glob("[0-9]*.md"))])


def _row(path: Path) -> tuple[str, str]:
    heading = path.read_text(encoding="utf-8").partition("\n")[0]
    number, _, title = heading.removeprefix("# ").partition(". ")
    return f"[{int(number)}]({path.name})", title


PARTS: Parts = {"index": _index}
