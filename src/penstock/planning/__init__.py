"""The capacity planner: from a workload and the hardware of a machine to a cluster, without I/O.

`plan` is the entry. Every printed number is a `Figure` with its formula, so that `penstock plan --explain`
can show it. `paper` places the planned partitions with the controller's own code and checks the limits of
each broker.

Owns: the formulas, and the package data `coefficients.json`, which `bench.coefficients` writes.
Imports: `wire`, `model`, and to place partitions on paper the decisions of `metadata`.
Used by: `penstock.cli` alone.
"""
