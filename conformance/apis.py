"""The APIs of Apache Kafka 4.3.1 on the listener of clients, beside those of Penstock.

`kafka_apis.json` has what Kafka's ApiVersions response says. A test compares it with that of a broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from penstock.wire.apis import APIS

__all__ = ["MISSING", "kafka_apis", "render_apis"]

_FILE: Final = Path(__file__).parent / "kafka_apis.json"
#: by API key: why Penstock does not serve an API, or other versions of it
MISSING: Final[dict[int, str]] = {
    22: "version 6 has two-phase commit (KIP-939), which Kafka 4.3 marks as unstable",
}
#: by API key: what differs in the effect of an API that is served in the same versions
_EFFECTS: Final = {
    34: "clients of the replica get one retriable error at the end of a move",
    38: "the owner of a token has to be of type User; limits of renewers and tokens",
    40: "ends the connections of a removed token",
    71: "subscriptions are the configs of the resource type CLIENT_METRICS, as in Kafka",
    80: "forwarded to the active controller, as in Kafka",
    81: "forwarded to the active controller, as in Kafka",
    88: "what is refused, and what differs: [Kafka Streams](streams.md#differences-from-apache-kafka-43)",
}
_INTRODUCTION: Final = """\
## APIs

What Apache Kafka 4.3.1 answers to ApiVersions on a listener of clients, and what Penstock does. Versions
that Kafka marks as unstable are not offered by either, except InitProducerId 6. Differences of single
responses are in [differences from Apache Kafka](differential.md).

| key | API | Kafka | Penstock | difference |
|--:|---|---|---|---|
"""


def kafka_apis() -> dict[int, tuple[int, int]]:
    """The versions that Kafka offers, by API key."""
    content: dict[str, list[int]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return {int(key): (low, high) for key, (low, high) in content.items()}


def render_apis() -> str:
    rows = []
    for key, (low, high) in sorted(kafka_apis().items()):
        api = APIS.get(key)
        ours = None if api is None else (api.min_version, api.max_version)
        why = MISSING.get(key, "") if ours != (low, high) else _EFFECTS.get(key, "")
        name = "" if api is None else api.name
        said = "missing" if ours is None else "same" if ours == (low, high) else f"{ours[0]} to {ours[1]}"
        rows.append(f"| {key} | {name} | {low} to {high} | {said} | {why} |")
    return _INTRODUCTION + "\n".join(rows) + "\n"
