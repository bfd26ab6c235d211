"""The zone of the node that a pod runs on, for `broker.rack`.

The zone is remembered beside the data: a pod that starts again while the API server is away keeps its rack.
A remembered zone may be wrong only if the pod has moved to another zone meanwhile, and a volume of a zone
moves with its pod. Without any knowledge the broker does not start: replicas that were placed without zones
would have to move later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.cli.container.kubernetes import KubernetesApi, Unreachable
from penstock.cli.failure import Failure

__all__ = ["LABEL", "zone_of"]

LABEL: Final = "topology.kubernetes.io/zone"
_FILE: Final = "kubernetes-zone"
_PAUSE_S: Final = 1.0


def zone_of(
    node: str,
    memory: Path | None,
    patience_s: float,
    api: KubernetesApi | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> str | None:
    """The zone of a node; None if the node has none. `memory` is a folder that outlives the pod."""
    api = KubernetesApi() if api is None else api
    end_s = clock_s() + patience_s
    while True:
        try:
            found = api.get(f"/api/v1/nodes/{node}")
            break
        except Unreachable as error:
            known = _remembered(memory)
            if known is not None:
                return known or None
            if clock_s() >= end_s:
                raise Failure(f"the zone of node {node} is not known: {error}") from error
            sleep(_PAUSE_S)
    zone = _labels(found).get(LABEL, "")
    if memory is not None and _remembered(memory) != zone:
        _remember(memory, zone)
    return zone or None


def _labels(node: Mapping[str, Any] | None) -> Mapping[str, str]:
    return {} if node is None else node.get("metadata", {}).get("labels") or {}


def _remembered(memory: Path | None) -> str | None:
    """The zone at the last start, empty if the node had none; None if nothing is known."""
    if memory is None:
        return None
    try:
        return (memory / _FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _remember(memory: Path, zone: str) -> None:
    new = memory / f"{_FILE}.new"
    try:
        new.write_text(f"{zone}\n", encoding="utf-8")
        new.replace(memory / _FILE)
    except OSError as error:
        # A full disk must not keep a broker from starting.
        print(f"the zone {zone!r} is not remembered: {error.strerror}", flush=True)
