"""The negative matrix: every mechanism and every wrong thing, on Penstock and on Apache Kafka.

`python -m differential.negative` runs the table on both, records Kafka's outcomes in `kafka.json` and renders
`docs/security-matrix.md`. The tests run it on Penstock, on the listeners of clients and of nodes.
"""
