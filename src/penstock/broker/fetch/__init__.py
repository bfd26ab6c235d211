"""Answers fetches of clients and followers: find the partitions, read, wait, respond.

Owns: reading, waiting fetches, clients' fetch sessions, and the shortcut for repeated fetches.
Imports: `broker.replica` and `broker.base`.
Used by: the handlers of Fetch. `broker.app` composes it.
"""
