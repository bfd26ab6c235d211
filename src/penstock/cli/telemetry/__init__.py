"""The sub-commands of `penstock telemetry`, their progress output, and the file that keeps Spark's log.

Imports: the shared helpers of `penstock.cli`. The extras `spark` and `telemetry` are imported when a command
runs, not when its module is loaded.
Used by: `penstock.cli.commands.telemetry`, which registers the sub-commands.
"""
