"""Stage 4: alerts.

`features` says what is looked at. In tasks, `in_tasks` judges single GPUs (`gpu_rules`, whose state is
`memory`) and sends signals. On the driver, `on_driver` compares GPUs (`fleet_rules`, whose state is
`peers`). `incidents` decides when something wrong becomes an alert and when that is over.

Imports: the columns and thresholds of the pipeline.
Used by: `telemetry.pipeline.tasks` and `telemetry.pipeline.batches`.
"""

from penstock.telemetry.pipeline.detectors.in_tasks import SIGNALS, GpuDetectors, Signalled
from penstock.telemetry.pipeline.detectors.incidents import Alert, in_order
from penstock.telemetry.pipeline.detectors.on_driver import FleetDetectors

__all__ = ["SIGNALS", "Alert", "FleetDetectors", "GpuDetectors", "Signalled", "in_order"]
