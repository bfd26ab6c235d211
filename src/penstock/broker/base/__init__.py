"""Services without knowledge of replicas or the cluster: the lowest layer of `broker`.

Owns: logging, metrics, the request context, the implementations of `penstock.ports` on the operating system
(clock, random numbers, files, workers), file descriptors, retries, supported features.
Imports: no other package of `broker`.
Used by: every package of `broker`.
"""
