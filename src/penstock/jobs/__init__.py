"""Supervised jobs of Spark that write Delta tables: what the telemetry pipeline and `penstock.tables` share.

A job reads topics through `penstock.spark`, runs batches one after the other, and shows each batch in its
tables once. The session and its start, reasons and retries of failures, files and commits, and maintenance
are here; what a batch does is not.

Imports: `spark` and `model`.
Used by: `telemetry`, `tables`, and the commands that run them.
"""
