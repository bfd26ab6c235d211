"""Queries over the pipeline's tables, for the API and for reports.

    reader    snapshots of tables, scans of spans
    spans     spans of time, and which rollup answers for which part
    gpus      which GPUs there are
    series    one GPU's telemetry, page by page
    fleet     utilisation, idleness, energy, health
    alerts    incidents, from the changes of alerts
    timeline  a metric of all GPUs in equal steps

No Spark here: tables are read through deltalake and Arrow, in the thread of the caller.

Imports: the schemas of `telemetry.pipeline`.
Used by: `telemetry.api`, `telemetry.report`, `penstock telemetry now`.
"""
