"""The metrics of links to other clusters."""

from __future__ import annotations

from typing import Final

from penstock.observability.family import Family, Kind

__all__ = ["LINKS"]


def _of_link(name: str, help: str, labels: tuple[str, ...]) -> Family:
    kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
    return Family(f"penstock_link_{name}", kind, help, labels)


_LINK: Final = ("link", "topic")
LINKS: Final = (
    _of_link(
        "lag_records",
        "Records at the source of a link that are not mirrored and committed here, by topic. Partitions of "
        "which the end at the source is not known are left out.",
        _LINK,
    ),
    _of_link(
        "lag_seconds",
        "For how long a partition of the topic has lacked records that the source has, at most; 0 with all.",
        _LINK,
    ),
    _of_link("partitions", "Mirrored partitions that this broker leads, by phase.", ("link", "phase")),
    _of_link("bytes_total", "Bytes of mirrored batches that this broker has appended.", _LINK),
    _of_link("missed_records_total", "Offsets that the source had deleted before.", _LINK),
    _of_link("errors_total", "Errors of fetches and comparisons.", ("link",)),
    _of_link("up", "1 if the last comparison with the source has succeeded, 0 if not.", ("link",)),
)
