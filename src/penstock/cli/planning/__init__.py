"""The parts of `penstock plan` that do I/O: package data, calibration on this machine, output.

Imports: `penstock.planning`, and `penstock.cli.cluster` for the brokers of a calibration.
Used by: `penstock.cli.commands.plan`.
"""
