"""Renders `docs/differential.md`: `python -m differential.page`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from differential.allowed import ALLOWED
from differential.generator import KINDS

__all__ = ["PAGE", "render"]

PAGE: Final = Path(__file__).parent.parent / "docs" / "differential.md"
_INTRODUCTION: Final = """\
<!-- Rendered by `python -m differential.page` from `differential/allowed.py`; edit that, not this page. -->
# Differences from Apache Kafka

`make differential` sends the same random requests to Penstock and to Apache Kafka 4.3.1, one broker
each, over raw sockets, and compares every response field by field. The requests are generated from a
seed. If a seed ends with a difference that is not listed here, it is reduced to the requests that cause
the difference, and printed.

    make differential SEEDS=20
    make differential SEED=1234 SEEDS=1 ONLY=fetch,produce

`ONLY` accepts these kinds: {kinds}.
About one request in fifteen of some kinds is malformed: its frame is valid and its content is not.
`python -m differential --keep-going` reports every kind of difference once instead of ending a seed.

`make cluster-tools` runs Kafka's own tools for elections of leaders, pages of topics, subscriptions of client
metrics, and added and removed voters against three nodes of each, and compares their output.

Values that each broker generates are compared by their role, not their value: topic ids, producer ids, member
ids, ids of fetch sessions, the cluster's id, ports, append times. Throttle times are not compared, and of
error messages only their presence. Lists are compared by the names of their elements, not by their order.

## Documented differences

| difference | response | field | reason |
|---|---|---|---|
"""


def render() -> str:
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    rows = [
        f"| {entry.id} | {entry.api or 'any'} | {_field(entry.fields)} | {entry.reason} |"
        for entry in ALLOWED
    ]
    return _INTRODUCTION.format(kinds=kinds) + "\n".join(rows) + "\n"


def _field(fields: str) -> str:
    return f"`{fields.replace('*', '…')}`" if fields else "the whole response"


if __name__ == "__main__":
    PAGE.write_text(render())
