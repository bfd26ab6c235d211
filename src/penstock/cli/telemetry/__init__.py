"""The sub-commands of `penstock telemetry`, their progress output, and the file that keeps Spark's log.

May import the shared helpers of `penstock.cli`. Registered by `penstock.cli.commands.telemetry`. The extras
`spark` and `telemetry` are imported when a command runs, not when its module is loaded.
"""
