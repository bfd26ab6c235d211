"""Parts of pages that come from code or from results: the text between `<!-- KIND: NAME -->` and
`<!-- KIND: end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

__all__ = ["Parts", "names", "rendered", "table", "write"]

Parts: TypeAlias = Mapping[str, Callable[[], str]]


def rendered(kind: str, parts: Parts, text: str) -> str:
    """The text of a page with the current parts of a kind."""
    part = re.compile(rf"(<!-- {kind}: (?P<name>[a-z-]+) -->)(?P<text>.*?)(<!-- {kind}: end -->)", re.DOTALL)
    return part.sub(lambda found: f"{found[1]}{parts[found['name']]()}{found[4]}", text)


def names(kind: str, text: str) -> list[str]:
    """The names in the markers of a page, in order; each but `end` is followed by `end`."""
    return re.findall(rf"<!-- {kind}: ([a-z-]+) -->", text)


def write(kind: str, parts: Parts, pages: Sequence[Path]) -> None:
    for page in pages:
        page.write_text(rendered(kind, parts, page.read_text(encoding="utf-8")), encoding="utf-8")


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table on lines of its own."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
