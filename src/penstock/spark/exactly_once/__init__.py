"""`option("delivery", "exactly_once")`: each batch is in the topics once for read_committed readers.

Task attempts write in two-phase transactions (KIP-939) and leave them open. The driver writes a decision
into a compacted topic, and ends them. `protocol` has the rules, `decisions` the record, `names` the
transactional ids; these are pure. `encoding`, `partitions` and `producing` write rows, `coordinators` and
`journal` are the driver's connections, and `writers` is what Spark calls. docs/spark.md describes the
guarantees.
"""
