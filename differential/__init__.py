"""Differential fuzzing: the same random requests for Penstock and for Apache Kafka, every answer compared.

    python -m differential --seed 7 --seeds 5 --only fetch,produce

A seed yields a list of operations (`generator`). Operations name topics, producers, members and fetch
sessions by labels; each broker has its own values for them (`translation`). Both brokers get one operation
after the other over raw sockets (`connection`, `run`). Answers are reduced to what must agree (`normalise`),
compared field by field (`compare`), and judged by the list of documented differences (`allowed`). The
operations of a seed that ends with another difference are reduced to those that it needs (`shrink`).
"""
