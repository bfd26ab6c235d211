"""Every disaster, in the order of the report."""

from __future__ import annotations

from typing import Final

from disasters.catalogue import Disaster
from disasters.clocks import CLOCKS
from disasters.destructive import DESTRUCTIVE
from disasters.files_beside import BESIDE
from disasters.harmless_files import FILES
from disasters.harmless_operations import OPERATIONS
from disasters.header_fields import FIELDS
from disasters.manifests import MANIFESTS
from disasters.queues import QUEUES
from disasters.quorum_files import QUORUM
from disasters.recreated_topics import RECREATED
from disasters.state_logs import STATES

__all__ = ["ALL", "HARMFUL", "HARMLESS"]

#: destroyed acknowledged records once
HARMFUL: Final[tuple[Disaster, ...]] = (
    *DESTRUCTIVE.disasters,
    *CLOCKS.disasters,
    *FIELDS.disasters,
    *BESIDE.disasters,
    *RECREATED.disasters,
    *QUORUM.disasters,
    *QUEUES.disasters,
)
HARMLESS: Final[tuple[Disaster, ...]] = (
    *FILES.disasters,
    *MANIFESTS.disasters,
    *STATES.disasters,
    *OPERATIONS.disasters,
)
ALL: Final[tuple[Disaster, ...]] = (*HARMFUL, *HARMLESS)
