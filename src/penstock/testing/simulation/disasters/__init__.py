"""Disasters: damaged, stale and missing copies, and what a cluster still owes its clients after them."""

from __future__ import annotations

from random import Random

from penstock.testing.simulation.disasters.damage import Damage, Outlook
from penstock.testing.simulation.disasters.scenarios import DIRECTED, SINGLE, Disaster

__all__ = ["DISASTERS", "SINGLE", "Damage", "Disaster", "Outlook", "choose"]

DISASTERS: dict[str, Disaster] = {**DIRECTED}


def choose(seed: int) -> str:
    """The disaster of a seed."""
    return Random(f"{seed}/disaster").choice(tuple(DISASTERS))
