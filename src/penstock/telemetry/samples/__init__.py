"""Recordings that come with Penstock: `h200`, five minutes of one GPU under known loads (h200_phases.csv).

Owns: the files.
Imports: nothing of Penstock.
Used by: `penstock telemetry replay`.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["sample_path"]

_FILES = {"sample:h200": "h200_nvidia_smi.csv"}


def sample_path(name: str) -> Path | None:
    """The file of a recording, named as in `sample:h200`; None for a name of anything else."""
    file = _FILES.get(name)
    return None if file is None else Path(__file__).parent / file
