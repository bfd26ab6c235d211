"""Syslog messages of audit events (RFC 5424), framed for a stream by their length (RFC 5425, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["frame", "message"]

#: RFC 5424, section 6.2.1: the facility "log audit"
_FACILITY: Final = 13
_WARNING: Final = 4
_INFORMATIONAL: Final = 6
_FAILURE: Final = 2
_APP: Final = "penstock"
_NAME_MAX: Final = 255
_MSGID_MAX: Final = 32


def message(event: Mapping[str, Any], line: bytes, host: str, node_id: int) -> bytes:
    """An event, and the line that is the text of its message. A failure is a warning."""
    severity = _WARNING if event.get("status_id") == _FAILURE else _INFORMATIONAL
    time = datetime.fromtimestamp(event["time"] / 1000, UTC).isoformat(timespec="milliseconds")
    fields = (
        f"<{_FACILITY * 8 + severity}>1",
        time.replace("+00:00", "Z"),
        _name(host, _NAME_MAX),
        _APP,
        _name(str(node_id), _NAME_MAX),
        _name(str(event.get("event", "")), _MSGID_MAX),
        "-",
    )
    return " ".join(fields).encode("ascii") + b" " + line


def frame(message: bytes) -> bytes:
    return b"%d %b" % (len(message), message)


def _name(text: str, most: int) -> str:
    """A field of the header: printable ASCII without spaces; a hyphen stands for none."""
    return "".join(c for c in text if "!" <= c <= "~")[:most] or "-"
