"""Disasters: damaged, stale and missing copies, and what a cluster still owes its clients after them."""
