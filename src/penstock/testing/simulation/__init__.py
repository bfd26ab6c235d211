"""A deterministic simulation of brokers, clients and everything that goes wrong around them.

    python -m penstock.testing.simulation --seed 7 --replay

The broker is the real one; its event loop, network, disk, clocks and randomness are not
(docs/internals/simulation.md). These modules know no brokers: `loop`, `kernel`, `process`, `network`,
`transport`, `ports`, `trace`. Clients (`clients`, `workload`, `members`) write a `history`, which `checkers`
check; `invariants` check the state inside of brokers. A `cluster` holds nodes, clients and checkers.
`faults`, `directed_faults`, `healing` and `disasters` act on it. `scenario` builds and runs it from a seed.

Owns: the simulated world, its faults and its checkers.
Imports: every other package; a broker as `broker.app` composes it.
Used by: `make sim`, `make mutants` and the tests.
"""
