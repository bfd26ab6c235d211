"""A deterministic simulation of brokers, clients and everything that goes wrong around them.

    python -m penstock.testing.simulation --seed 7 --replay

The broker is the real one; its event loop, network, disk, clocks and randomness are not
(docs/internals/simulation.md). The world knows no brokers: `loop`, `process`, `network`, `transport`,
`doors`, `trace`. Clients (`clients`, `workload`, `members`) write a `history`, which `checkers` judge;
`invariants` judge what is inside of brokers. `scenario` draws all of it from a seed.
"""
