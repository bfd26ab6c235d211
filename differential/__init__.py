"""Differential fuzzing: the same random requests for Penstock and for Apache Kafka, every answer compared.

    python -m differential --seed 7 --seeds 5 --only fetch,produce

A seed yields a list of operations (`generator`). Operations name topics, producers, members and fetch
sessions by labels; each broker has its own values for them (`translation`). Both brokers get one operation
after the other over raw sockets (`connection`, `run`). Responses are reduced to the fields that must agree
(`normalise`), compared field by field (`compare`), and checked against the list of documented differences
(`allowed`). If there is another difference, the operations of the seed are reduced to those that it needs
(`shrink`).
"""
