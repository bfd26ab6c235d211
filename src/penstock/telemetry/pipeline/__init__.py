"""The pipeline: from the topic of samples to clean tables, rollups and alerts, exactly once.

    topic ─▶ validate ─▶ shards: admission ─▶ rollups ─▶ files ─┐
                                  └─▶ features ─▶ detectors ────┴─▶ commit of the batch

`validate` and `views` are Spark transforms. What needs memory (duplicates, open windows, counters) runs in
`shard`, one task for the GPUs of one shard, on whole columns at once; detectors, which compare GPUs with each
other, run on the driver. `batches` is the one place that knows the order of a batch's effects.

Nothing here reads a clock, except for the time that a batch is given before its first try, and keeps: a batch
that is run again does the same again.
"""
