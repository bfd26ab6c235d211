"""Chaos on real processes: brokers that are killed, stopped, cut off and filled up under librdkafka clients.

    python -m chaos --seconds 60 --seed 7 --brokers 3

A seed yields a schedule of faults (`nemesis`), which a cluster of processes suffers (`cluster`, `links`)
while clients write and read (`clients`) and keep a record of what they were told (`history`); in the end
everything is healed, must work again, and the record is judged (`checker`) as `jepsen.tests.kafka` would.
"""
