"""The catalogue of disasters: damaged, stale and missing copies of data."""

from __future__ import annotations

from random import Random
from typing import Final

from penstock.testing.simulation.disasters.clocks import CLOCKS
from penstock.testing.simulation.disasters.damage import Damage, Outlook
from penstock.testing.simulation.disasters.mixture import mixture
from penstock.testing.simulation.disasters.rot import ROT
from penstock.testing.simulation.disasters.scenarios import DIRECTED, SINGLE
from penstock.testing.simulation.disasters.small_files import SMALL_FILES
from penstock.testing.simulation.disasters.steps import Disaster

__all__ = ["DISASTERS", "SINGLE", "Damage", "Disaster", "Outlook", "choose"]

_DIRECTED: Final[dict[str, Disaster]] = {**DIRECTED, **CLOCKS, **SMALL_FILES, **ROT}
DISASTERS: Final[dict[str, Disaster]] = {**_DIRECTED, "mixture": mixture}


def choose(seed: int) -> str:
    """The disaster of a seed: half of them are mixtures."""
    rng = Random(f"{seed}/disaster")
    return "mixture" if rng.random() < 0.5 else rng.choice(tuple(_DIRECTED))
