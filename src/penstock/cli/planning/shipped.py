"""The coefficients in the installed package."""

from __future__ import annotations

from importlib.resources import files

from penstock.planning.coefficients import FILE, Coefficients, decode

__all__ = ["shipped_coefficients"]


def shipped_coefficients() -> Coefficients:
    """The coefficients that were measured by the project's benchmarks."""
    return decode(files("penstock.planning").joinpath(FILE).read_bytes())
