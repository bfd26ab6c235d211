"""The alert rules with short times: windows and `for` in seconds. The thresholds stay."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

import yaml

__all__ = ["alert_names", "shortened"]

#: windows of the rules, and what they become. The longer ones first: they contain shorter ones.
WINDOWS: Final = {"[1h] offset 10m": "[20s] offset 15s", "[10m]": "[10s]", "[5m]": "[10s]"}
_FOR: Final = "2s"


def _text() -> str:
    return files("penstock.observability").joinpath("alerts.yml").read_text(encoding="utf-8")


def shortened() -> dict[str, Any]:
    """The rules as Prometheus reads them."""
    document: dict[str, Any] = yaml.safe_load(_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            for window, short in WINDOWS.items():
                rule["expr"] = rule["expr"].replace(window, short)
            if "for" in rule:
                rule["for"] = _FOR
    return document


def alert_names() -> list[str]:
    return [rule["alert"] for group in shortened()["groups"] for rule in group["rules"]]
