"""Chaos on real processes: brokers that are killed, stopped, cut off and filled up under librdkafka clients.

    python -m chaos --seconds 60 --seed 7 --brokers 3

A seed yields a schedule of faults (`nemesis`), which are injected into a cluster of processes (`cluster`,
`links`) while clients write and read (`clients`) and record all responses (`history`). At the end all faults
are healed, the cluster must work again, and the history is checked (`checker`) as `jepsen.tests.kafka` does.
"""
