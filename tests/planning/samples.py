"""Plans for tests: coefficients in round numbers."""

from __future__ import annotations

from typing import Any

from penstock.planning.coefficients import Coefficient, Coefficients
from penstock.planning.plan import Plan, make_plan
from penstock.planning.workload import Hardware, Workload


def coefficients(**values: float) -> Coefficients:
    known = {
        "append_s_per_gb": 0.5,
        "record_us": 0.02,
        "fetch_s_per_gb": 0.1,
        "replicate_s_per_gb": 1.4,
        "produce_request_us": 20.0,
        "fetch_request_us": 35.0,
        "idle_cores_per_replica": 8e-6,
        "resident_mb": 40.0,
        "connection_kb": 4.0,
        **values,
    }
    return Coefficients(
        machine="a machine", **{name: Coefficient(value, "a test") for name, value in known.items()}
    )


def workload(**changes: Any) -> Workload:
    """A million messages of 1 KB in a second, for a week."""
    known: dict[str, Any] = {"rate": 1e6, "size_bytes": 1000, "retention_s": 7 * 86_400.0, **changes}
    return Workload(**known)


def plan(hardware: Hardware | None = None, **changes: Any) -> Plan:
    return make_plan(workload(**changes), hardware or Hardware(), coefficients())
