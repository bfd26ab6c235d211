"""Produce requests whose response is pending: the appends, flushes and commits that they wait for.

Owns: the count of outstanding work per request, and the response.
Imports: `broker.replica` and `broker.base`.
Used by: the handler of Produce. Partitions complete the waits through callbacks.
"""
