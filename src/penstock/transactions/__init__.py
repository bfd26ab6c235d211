"""The transaction coordinator: transactional ids, their producer ids and epochs, and their transactions.

`states` has the table of states, `metadata` the transitions, `initialization` the decisions on
InitProducerId, `ending` the tables of EndTxn, `records` the format of `__transaction_state`, and `shard` the
other decisions.

Imports: `coordination`, `wire`, `ports`, `model`. No I/O and no clock.
Used by: `broker.coordinators`, which runs the shards over real logs and sends the markers.
"""
