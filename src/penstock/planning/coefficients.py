"""What the brokers cost: measured numbers, each with the row of the benchmarks that it comes from.

The file `coefficients.json` beside this module is package data. `penstock plan --calibrate` measures the same
values on the machine at hand.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["FILE", "MEASURED_BATCH_BYTES", "UNITS", "Coefficient", "Coefficients", "decode", "encode"]

FILE: Final = "coefficients.json"
#: the batches with which the costs per GB were measured; the cost of their requests is part of these
MEASURED_BATCH_BYTES: Final = 1_000_000
UNITS: Final = {
    "append_s_per_gb": "s of CPU per GB",
    "record_us": "µs of CPU per message",
    "fetch_s_per_gb": "s of CPU per GB",
    "replicate_s_per_gb": "s of CPU per GB",
    "produce_request_us": "µs of CPU per request",
    "fetch_request_us": "µs of CPU per request",
    "idle_cores_per_replica": "cores per replica",
    "resident_mb": "MB",
    "connection_kb": "KB",
}


class Coefficient(msgspec.Struct, frozen=True):
    """A measured value, with the row and the run that it comes from."""

    value: float
    source: str


class Coefficients(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of one broker on one core."""

    machine: str
    #: the leader writes bytes to its log, in batches of a megabyte
    append_s_per_gb: Coefficient
    #: the leader looks at each message of a batch
    record_us: Coefficient
    #: the leader sends bytes to a consumer or to a follower
    fetch_s_per_gb: Coefficient
    #: a follower receives bytes and writes them to its log
    replicate_s_per_gb: Coefficient
    #: each Produce request, whatever its size
    produce_request_us: Coefficient
    #: each Fetch request, whatever its size: at the leader, and again at the follower that sends it
    fetch_request_us: Coefficient
    #: a partition without traffic
    idle_cores_per_replica: Coefficient
    #: the memory of a broker that has just started
    resident_mb: Coefficient
    #: the memory of an idle connection
    connection_kb: Coefficient


def decode(content: bytes) -> Coefficients:
    """Read the content of a coefficients file."""
    return msgspec.json.decode(content, type=Coefficients)


def encode(coefficients: Coefficients) -> bytes:
    """The content of a coefficients file."""
    return msgspec.json.format(msgspec.json.encode(coefficients), indent=1) + b"\n"
