"""Every disaster, in the order of the report."""

from __future__ import annotations

from typing import Final

from disasters.catalogue import Disaster
from disasters.destructive import DESTRUCTIVE
from disasters.harmless_files import FILES
from disasters.harmless_operations import OPERATIONS

__all__ = ["ALL", "HARMLESS"]

HARMLESS: Final[tuple[Disaster, ...]] = (*FILES.disasters, *OPERATIONS.disasters)
ALL: Final[tuple[Disaster, ...]] = (*DESTRUCTIVE.disasters, *HARMLESS)
