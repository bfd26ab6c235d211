"""Finds Prometheus for tests (`lab.prometheus`), and skips them if there is none."""

from __future__ import annotations

import pytest

from lab.prometheus import prometheus_path

__all__ = ["prometheus_binary"]


def prometheus_binary(name: str) -> str:
    """The path of `promtool` or `prometheus`; skips the test if there is none."""
    found = prometheus_path(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    return found
