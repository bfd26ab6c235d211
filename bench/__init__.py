"""Benchmarks: throughput, latency and cost of a broker, as rows of one table, measured from outside.

`python -m bench` starts the broker as users do, drives it with load from C, and reads its CPU time and memory
from `/proc`. With `AGAINST=kafka` Apache Kafka runs beside it and rounds alternate, so that both see the same
noise. Judge best against best: on a shared machine the median says more about the neighbours.
"""
