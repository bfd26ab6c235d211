"""Disasters: damaged, stale and missing copies, and the guarantees that still hold after them."""
