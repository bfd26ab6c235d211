"""Disasters: damaged, stale and missing copies, and the guarantees that still hold after them.

Imports: the rest of `testing.simulation`, `storage`.
Used by: `testing.simulation.scenario`.
"""
