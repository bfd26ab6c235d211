"""Files as earlier releases wrote them."""

from __future__ import annotations

from collections.abc import Iterable


def of_version_0(lines: Iterable[str]) -> bytes:
    """Kafka's checkpoint, without a checksum."""
    entries = list(lines)
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()
