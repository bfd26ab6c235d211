"""One log stream of several brokers: each line carries the id of its broker."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LineSplitter", "level_of", "tagged"]

#: the beginning of a line in each format: text, JSON, and for people, where colours may precede the level
_LEVEL: Final = re.compile(
    rb'(?:timestamp=\S+ level=|\{"timestamp": "[^"]*", "level": "'
    rb"|(?:\x1b\[\d*m)?[\d:.]+(?:\x1b\[0m)? (?:\x1b\[[\d;]+m)?)"
    rb"(debug|info|warning|error)\b"
)

#: a line that is longer is written in parts
_LONGEST: Final = 1 << 20


def tagged(line: bytes, broker: int) -> bytes:
    """A line with its broker: a field of a JSON object, or `broker=ID` in front of text."""
    if line.startswith(b"{"):
        separator = b"" if line[1:2] == b"}" else b", "
        return b'{"broker": %d%b%b' % (broker, separator, line[1:])
    return b"broker=%d %b" % (broker, line)


def level_of(line: bytes) -> str:
    """The level of a broker's log line. Other output, such as a traceback of the interpreter, is an error."""
    found = _LEVEL.match(line)
    return "error" if found is None else found[1].decode()


class LineSplitter:
    """Bytes in, whole lines out. A broker that ends in the middle of a line leaves a rest."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def end(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
