"""Disasters on real processes: damage that operators and clouds do to data directories, clocks and limits.

    python -m disasters                          every disaster, on three Penstock brokers
    python -m disasters --against kafka          the same on Apache Kafka (from the lab)
    python -m disasters --only segment-top       some of them

Each disaster is a `Disaster` (`catalogue`, `destructive`, `harmless`): a name, a sentence and a short script.
The script runs in a `Scene`: three brokers as processes, a topic with replication factor 3 and min ISR 2, an
idempotent producer with acks=all, and a ledger of every acknowledged record and committed offset. A `Layout`
says where each kind of broker keeps its files, so that one script serves both. After the script all brokers
are started, everything is read back, every replica's files are read, and `judge` states the verdict.
"""
