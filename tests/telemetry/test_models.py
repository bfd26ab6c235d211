from __future__ import annotations

import pytest

from penstock.telemetry.models import power_limit_w


@pytest.mark.parametrize(
    ("model", "limit_w"),
    [
        ("NVIDIA H200", 700.0),
        ("NVIDIA H200 NVL", 600.0),
        ("NVIDIA H100 80GB HBM3", 700.0),
        ("NVIDIA H100 PCIe", 350.0),
        ("nvidia h800 nvl", 400.0),
        ("NVIDIA GB200", 1200.0),
        ("NVIDIA B200", 1000.0),
        ("NVIDIA A100-SXM4-80GB", 400.0),
        ("NVIDIA A100-PCIE-40GB", 250.0),
        ("NVIDIA A100 80GB PCIe", 300.0),
        ("NVIDIA A10", 150.0),
        ("NVIDIA L4", 72.0),
        ("NVIDIA L40", 300.0),
        ("NVIDIA L40S", 350.0),
        ("Tesla T4", 70.0),
        ("NVIDIA A1000", None),
        ("", None),
        (None, None),
    ],
)
def test_a_model_has_the_limit_of_its_data_sheet(model: str | None, limit_w: float | None) -> None:
    """The more specific pattern comes first: an L40S is no L4, an A1000 no A100."""
    assert power_limit_w(model) == limit_w
