"""The whole product to look at: brokers, a simulated fleet, the pipeline and its API, all of them processes.

    children   a process that takes part: its command, its log, its end
    show       who takes part and how each is started, and the order in which they end
    watch      what can be seen of all of them from outside, like any client: metrics and topics
    view       that, for a terminal or as lines
    watchman   ends all of it if whoever started it is killed
    outcome    what is true in the end: every message accounted for, alerts against the ground truth

Brokers come from whoever starts the show. `thresholds.yaml` is for this show only, whose faults last half a
minute.
"""

from penstock.telemetry.demo.outcome import Outcome, read_outcome
from penstock.telemetry.demo.show import Setting, Show, ShowBroken
from penstock.telemetry.demo.view import screen
from penstock.telemetry.demo.watch import Sight, Watcher

__all__ = ["Outcome", "Setting", "Show", "ShowBroken", "Sight", "Watcher", "read_outcome", "screen"]
