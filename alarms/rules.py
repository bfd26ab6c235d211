"""The alert rules with short times: windows, ages and `for` in seconds. The thresholds stay."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

import yaml

__all__ = ["alert_names", "as_shipped", "shortened"]

#: windows of the rules, and what they become. The longer ones first: they contain shorter ones.
WINDOWS: Final = {
    "[1h] offset 30m": "[20s] offset 15s",
    "[1h:5m] offset 30m": "[10s:2s] offset 15s",
    "[15m:1m] offset 20m": "[10s:2s] offset 15s",
    "[15m:1m]": "[10s:2s]",
    "offset 90m": "offset 20s",
    "[1d]": "[60s]",
    "[10m]": "[10s]",
    "[5m]": "[10s]",
}
#: what is added to intervals of a backup, in seconds, and what it becomes
AGES: Final = {"+ 3600": "+ 5", "+ 60": "+ 5"}
_FOR: Final = "2s"


def _text() -> str:
    return files("penstock.observability").joinpath("alerts.yml").read_text(encoding="utf-8")


def as_shipped() -> dict[str, Any]:
    """The rules as users get them."""
    document: dict[str, Any] = yaml.safe_load(_text())
    return document


def shortened() -> dict[str, Any]:
    """The rules with short times."""
    document = as_shipped()
    for group in document["groups"]:
        for rule in group["rules"]:
            for long, short in {**WINDOWS, **AGES}.items():
                rule["expr"] = rule["expr"].replace(long, short)
            if "for" in rule:
                rule["for"] = _FOR
    return document


def alert_names() -> list[str]:
    return [rule["alert"] for group in shortened()["groups"] for rule in group["rules"]]
