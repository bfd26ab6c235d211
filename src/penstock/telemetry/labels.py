"""Labels of samples, in one spelling for all exporters.

dcgm-exporter's labels have changed their spelling over its versions, and clusters relabel them. The GPU, the
device and the host leave the labels for fields of their own; the rest goes on under one spelling. Labels that
may name a workload go on as they are: `workloads` judges them where samples are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["MalformedLabels", "Origin", "origin", "parse_labels"]

_UUID: Final = ("UUID", "uuid", "gpu_uuid", "GPU_UUID")
_HOST: Final = ("Hostname", "hostname", "host", "node", "instance")
_DEVICE: Final = ("device",)
_INDEX: Final = ("gpu", "index", "minor_number")
#: other spellings of labels that go on
_SPELLINGS: Final = {
    "modelName": "model_name",
    "gpu_model": "model_name",
    "name": "model_name",
    "DCGM_FI_DRIVER_VERSION": "driver_version",
    "driver": "driver_version",
    "pod_name": "pod",
    "pod_namespace": "namespace",
    "container_name": "container",
    "GPU_I_PROFILE": "mig_profile",
    "GPU_I_ID": "mig_instance",
}
# A parser of our own, because prometheus-client's parser never ends on some malformed lists of labels.
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\[\\n"])*)"\s*(?:,\s*|$)')
_ESCAPE: Final = re.compile(r'\\([\\n"])')
_ESCAPES: Final = {"\\": "\\", "n": "\n", '"': '"'}


class MalformedLabels(ValueError):
    """A text that is no list of labels."""


class Origin(NamedTuple):
    """Where a sample comes from; `uuid` is empty where the labels name no GPU."""

    uuid: str
    device: str
    hostname: str
    labels: dict[str, str]


def origin(labels: Mapping[str, str], hostname: str = "") -> Origin:
    """The labels in one spelling, without empty ones. `hostname` replaces a missing host."""
    left = {name: value for name, value in labels.items() if value}
    uuid = _take(left, _UUID)
    host = _take(left, _HOST) or hostname
    index = _take(left, _INDEX)
    device = _take(left, _DEVICE) or (f"nvidia{index}" if index else "")
    canonical: dict[str, str] = {}
    for name, value in left.items():
        # Where two spellings meet, the first that the exporter wrote stays.
        canonical.setdefault(_SPELLINGS.get(name, name), value)
    return Origin(uuid, device, host, canonical)


def parse_labels(text: str) -> dict[str, str]:
    """The labels in Prometheus' notation, with or without their braces."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    labels: dict[str, str] = {}
    position = 0
    while position < len(inner):
        match = _LABEL.match(inner, position)
        if match is None:
            raise MalformedLabels(f"no label at character {position} of {inner!r}")
        labels[match[1]] = _ESCAPE.sub(lambda escape: _ESCAPES[escape[1]], match[2])
        position = match.end()
    return labels


def _take(labels: dict[str, str], spellings: tuple[str, ...]) -> str:
    """The first of the spellings that is there; all of them leave the labels."""
    found = [labels.pop(name) for name in spellings if name in labels]
    return found[0] if found else ""
