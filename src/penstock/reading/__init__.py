"""Reading ranges of offsets into Arrow columns, over blocking connections: what Spark tasks and frames share.

A reader resolves where it starts and ends (`offsets`), cuts that into ranges (`planning`) and reads each of
them (`fetching`) over the connections of `connection`. Nothing here knows Spark, so that a program without
Spark reads with the same code.

Imports: `net` (logins, errors of connections), `wire`, `records`, `security`, `ports`, `model`.
Used by: `penstock.spark`, `penstock.frames`, and the telemetry pipeline.
"""
