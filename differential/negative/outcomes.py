"""Recorded outcomes of Apache Kafka, the differences that are intended, and the page about both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DEVIATIONS", "PAGE", "RECORDED", "record", "recorded", "rendered"]

RECORDED: Final = Path(__file__).with_name("kafka.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "security-matrix.md"
#: cells whose outcome differs from Kafka's on purpose: the name, without the listener, and the reason
DEVIATIONS: Final[Mapping[str, str]] = {
    "another channel binding in the last message": "RFC 5802, 5.1: it must repeat that of the first message",
    "a mandatory extension": "RFC 5802, 5.1: an extension that is not supported must fail",
    "an empty proof": "Kafka fails without an answer",
    "a proof of another length": "Kafka fails without an answer",
}

_INTRODUCTION: Final = """\
# The negative matrix

The answers of a broker to clients that do something wrong before or during authentication. Each cell runs
against Penstock and against Apache Kafka 4.3.1 with the same settings (`make security-matrix`). `make test`
runs the table against Penstock, on the listeners of clients and on the internal listener, and compares the
outcomes with those of Kafka. A row with a reason differs on purpose.

Error 58 is SASL_AUTHENTICATION_FAILED, 33 UNSUPPORTED_SASL_MECHANISM, 34 ILLEGAL_SASL_STATE, 35
UNSUPPORTED_VERSION. The connection is closed after each error. This page is rendered from the last run.
"""


def record(outcomes: Mapping[str, str]) -> None:
    RECORDED.write_text(json.dumps(dict(outcomes), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def recorded() -> dict[str, str]:
    """Kafka's outcome by the name of the cell."""
    found: dict[str, str] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def rendered(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The page: one row for each wrong thing, one column for each mechanism."""
    lines = [_INTRODUCTION]
    groups: dict[tuple[str, str], list[str]] = {}
    for name in ours:
        listener, mechanism, wrong = name.split("/", 2)
        groups.setdefault((listener, mechanism), []).append(wrong)
    for (listener, mechanism), wrongs in groups.items():
        title = "TLS with client certificates" if listener == "TLS" else f"SASL {mechanism}"
        lines += [f"## {title}", "", "| client | Penstock | Kafka | |", "|---|---|---|---|"]
        for wrong in wrongs:
            name = f"{listener}/{mechanism}/{wrong}"
            reason = DEVIATIONS.get(f"{mechanism}/{wrong}", DEVIATIONS.get(wrong, ""))
            lines.append(f"| {wrong} | {ours[name]} | {theirs.get(name, '')} | {reason} |")
        lines.append("")
    return "\n".join(lines)
