"""The runtime that hosts any coordinator on the partitions of an internal topic, and the group coordinator.

Owns: the shards of the partitions that this broker leads, their logs, their pending replies and effects.
Imports: `broker.healing`, `broker.replica`, `broker.base`, and the pure packages `coordination` and `groups`.
Used by: the handlers of group APIs and FindCoordinator. `broker.app` composes it, `broker.replica` reports
elections and resignations to it.
"""
