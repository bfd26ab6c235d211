"""Stage 4: alerts.

`features` says what is looked at. In tasks, `gpu_detectors` judges single GPUs (`gpu_rules`, whose state is
`memory`) and sends signals. On the driver, `fleet_detectors` compares GPUs (`fleet_rules`, whose state is
`peers`). `incidents` decides when something wrong becomes an alert and when that is over.

Imports: the columns and thresholds of the pipeline.
Used by: `telemetry.pipeline.tasks` and `telemetry.pipeline.batches`.
"""

from penstock.telemetry.pipeline.detectors.fleet_detectors import FleetDetectors
from penstock.telemetry.pipeline.detectors.gpu_detectors import SIGNALS, GpuDetectors, Signalled
from penstock.telemetry.pipeline.detectors.incidents import Alert, in_order

__all__ = ["SIGNALS", "Alert", "FleetDetectors", "GpuDetectors", "Signalled", "in_order"]
