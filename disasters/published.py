"""The tables in docs/storage.md, from the results that `make disasters` keeps beside the page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from disasters import report
from disasters.table import HARMFUL, HARMLESS

__all__ = ["PAGE", "published"]

_DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGE: Final = _DOCS / "storage.md"
_COLUMNS: Final = {"Penstock": "penstock.json", "Apache Kafka 4.3.1": "kafka.json"}


def published(page: str) -> str:
    """Returns the page with the tables of the results that are there."""
    columns = {name: report.load(_DOCS / "disasters" / file) for name, file in _COLUMNS.items()}
    return report.publish(
        page,
        {
            "destructive disasters": report.markdown(HARMFUL, columns),
            "harmless disasters": report.markdown(HARMLESS, columns),
        },
    )
