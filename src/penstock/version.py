"""The version of the package, for modules below the clients, which the package imports on first use."""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.2.0"
