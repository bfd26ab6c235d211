"""One page of metrics out of those of several brokers, in the text format of Prometheus.

Each sample gets a label with its broker. A family appears once, as the format demands, with the samples of
all brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["merged_pages"]

_COMMENT: Final = "# "
_LABEL: Final = "broker"
#: what Prometheus makes of a label that the page has already
_RENAMED: Final = f"exported_{_LABEL}"


def merged_pages(pages: Mapping[int, str]) -> Iterator[str]:
    """The lines of the merged page; `pages` by the id of the broker."""
    comments: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for broker, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith(_COMMENT):
                kind, _, rest = line[len(_COMMENT) :].partition(" ")
                if kind not in ("HELP", "TYPE"):
                    continue
                family = rest.partition(" ")[0]
                known = comments.setdefault(family, [])
                if not any(each.startswith(f"# {kind} ") for each in known):
                    known.append(line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, broker))
    for family, lines in samples.items():
        yield from comments.get(family, ())
        yield from lines


def _labelled(line: str, broker: int) -> str:
    label = f'{_LABEL}="{broker}"'
    brace, space = line.find("{"), line.find(" ")
    if 0 <= brace < space:
        rest = line[brace + 1 :]
        if rest.startswith(f'{_LABEL}="') or f',{_LABEL}="' in rest:
            rest = rest.replace(f'{_LABEL}="', f'{_RENAMED}="', 1)
        return (
            f"{line[:brace]}{{{label},{rest}"
            if not rest.startswith("}")
            else f"{line[:brace]}{{{label}{rest}"
        )
    return f"{line[:space]}{{{label}}}{line[space:]}"
