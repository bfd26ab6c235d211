"""Delta tables of topics: `penstock table`.

`definition` is what a table is made of, `catalog` keeps definitions in a compacted topic. `keys` makes names
of keys, `judging` rows and dead letters of messages, and `upserting` the next rows of a bucket: all without
I/O and without Spark. `tasks` runs them on executors, `plans` keeps what a batch commits, `batches` is the
order of effects on the driver that shows each batch once, and `job` is the query.

Imports: `jobs`, `values`, `registry`, `reading` and `model`. Import contracts keep brokers out.
Used by: `penstock table`.
"""
