"""The demo: brokers, a simulated fleet, the pipeline and its API, each as a process.

    children   a child process: its command, its log, its end
    show       the child processes, how each is started, and the order in which they end
    watch      the state of all of them, as clients see it: metrics and topics
    view       that state, for a terminal or as lines
    watchman   ends all processes if the parent is killed
    outcome    the result: every message accounted for, alerts against the ground truth

The caller starts the brokers. `thresholds.yaml` is for the demo only, whose faults last half a minute.

Importing the package imports none of them: `outcome` needs Arrow, which takes longer than a broker's start.

Imports: the settings of `telemetry.pipeline`.
Used by: `penstock telemetry demo`.
"""
