"""Power limits of GPU models, from NVIDIA's data sheets, for exporters that do not send them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["power_limit_w"]

#: by a pattern of the name that DCGM and nvidia-smi give, the first that matches; in watts
_LIMITS_W: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), limit_w)
    for pattern, limit_w in (
        (r"GB200", 1200.0),
        (r"B200", 1000.0),
        (r"H200 NVL", 600.0),
        (r"H200", 700.0),
        (r"H[18]00 PCIe", 350.0),
        (r"H[18]00 NVL", 400.0),
        (r"H[18]00", 700.0),
        (r"A[18]00-SXM", 400.0),
        (r"A[18]00-PCIE-40GB", 250.0),
        (r"A[18]00.*PCIe", 300.0),
        (r"A40\b", 300.0),
        (r"A30\b", 165.0),
        (r"A10\b", 150.0),
        (r"L40S", 350.0),
        (r"L40\b", 300.0),
        (r"L4\b", 72.0),
        (r"V100-SXM2", 300.0),
        (r"V100-PCIE", 250.0),
        (r"T4\b", 70.0),
        (r"RTX A6000|RTX 6000 Ada", 300.0),
    )
)


def power_limit_w(model: str | None) -> float | None:
    """The limit of a model as it leaves the factory; None for one that is not known."""
    return next((limit for pattern, limit in _LIMITS_W if model and pattern.search(model)), None)
