"""A fleet of GPUs that does not exist: seeded, with known faults.

`fleet` says which GPUs there are and what runs on them, `faults` what goes wrong with which and when (the
ground truth), `physics` what they measure at each tick, `encoding` turns a tick into messages, `dirt` spoils
some of them, and `run` paces it all. One seed and one start give the same messages, byte for byte.
"""
