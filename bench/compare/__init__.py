"""`make compare`: Penstock beside other message systems, one class of durability at a time.

`classes` says how each system is configured for each class, `systems` starts them, `workloads` measures,
`page` writes `docs/comparison.md`. `clients` has one load client for each protocol. They run as child
processes in an environment of the lab and import nothing of Penstock. `semantics` has the scenarios of SQS
and SNS, which are run and not measured.
"""
