"""The pipeline: from the topic of samples to clean tables, rollups and alerts, exactly once.

    topic ─▶ validate ─▶ tasks: admission ─▶ rollups ─▶ files ──┐
                                 └─▶ rules of GPUs ─▶ driver ───┴─▶ commit of the batch

`tasks.results_of` composes the stages of a batch. `validate` runs in the tasks that read. Stages with state
(duplicates, open windows, counters, rules of single GPUs) run in one task for each range of virtual shards,
on whole columns at once; rules that compare GPUs run on the driver. `state` keeps what is remembered.
`batches` is the one place that knows the order of a batch's effects.

Nothing here reads a clock, except for the time that a batch is given before its first try, and keeps: a batch
that is run again does the same again.

Imports: `spark`, the formats of `telemetry`.
Used by: `penstock telemetry run`; `telemetry.queries` imports the schemas of the tables.
"""
