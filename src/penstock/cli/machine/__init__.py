"""`penstock up --cores N`: several brokers as one machine, under one supervisor.

`layout` turns the configs of one machine into those of its brokers, `supervisor` runs them, `child` is one of
them, `endpoint` serves the metrics and the health of all.

Imports: `penstock.cli.cluster` for folders, ports and processes; the HTTP server of the broker's monitoring
port.
Used by: `penstock.cli.commands.up`.
"""
