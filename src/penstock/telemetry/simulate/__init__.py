"""A simulated fleet of GPUs with known faults, from a seed.

`fleet` has the GPUs and their jobs, `faults` the faults with their times (the ground truth), `physics` the
metrics at each tick. `encoding` turns a tick into messages, `dirt` damages some of them, and `run` sends them
on time. One seed and one start give the same messages, byte for byte.

Imports: the formats of `telemetry`, numpy.
Used by: `penstock telemetry simulate`.
"""
