"""JSON with one value a line, up to a number of characters.

Why not a library: a few kilobytes of nested lists become megabytes of indentation, and a page shows only the
beginning. This printer stops at the limit. It copies the text of numbers, so that every digit stays.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["is_json", "pretty_json"]

_INDENT: Final = "  "
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)


def is_json(data: bytes) -> bool:
    """Whether bytes are JSON that is not nested too deep. Builds no values."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def pretty_json(text: str, limit: int) -> tuple[str, bool]:
    """Valid JSON on lines, at most `limit` characters of it, and whether more was left out."""
    parts: list[str] = []
    size = depth = 0
    opened = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        closes = token in ("]", "}")
        if closes:
            depth -= 1
        if token == ",":
            token = ",\n" + _INDENT * min(depth, limit)
        elif token == ":":
            token = ": "
        elif (opened and not closes) or (closes and not opened):
            token = "\n" + _INDENT * min(depth, limit) + token
        opened = match[0] in ("[", "{")
        depth += opened
        parts.append(token)
        size += len(token)
        if size > limit:
            return "".join(parts)[:limit], True
    return "".join(parts), False
