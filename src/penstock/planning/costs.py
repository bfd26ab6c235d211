"""The processor time of leaders and followers, from the coefficients."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.planning.coefficients import MEASURED_BATCH_BYTES, Coefficients
from penstock.planning.workload import Workload

__all__ = ["Costs", "costs_of"]

_GB = 1e9
_US = 1e-6


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of CPU for each byte that is produced; one second per second is a whole core."""

    #: the leader appends it, with its part of the message and of the request
    append: float
    #: the leader sends it to one reader: a follower or a consumer
    serve: float
    #: a follower fetches and appends it
    follow: float

    def leader(self, readers: float) -> float:
        return self.append + self.serve * readers


def costs_of(workload: Workload, measured: Coefficients) -> Costs:
    """The costs for the message size and the batch size of the workload.

    Invariant: a batch of the measured size has no request costs of its own, because the costs per GB contain
    them.
    """
    batch = max(workload.batch_bytes, workload.size_bytes)
    requests_per_byte = max(0.0, 1 / batch - 1 / MEASURED_BATCH_BYTES)
    produce = requests_per_byte * measured.produce_request_us.value * _US
    fetch = requests_per_byte * measured.fetch_request_us.value * _US
    record = measured.record_us.value * _US / workload.size_bytes
    return Costs(
        append=measured.append_s_per_gb.value / _GB + produce + record,
        serve=measured.fetch_s_per_gb.value / _GB + fetch,
        follow=measured.replicate_s_per_gb.value / _GB + fetch,
    )
