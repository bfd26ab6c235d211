"""Consumer groups: classic and KIP-848 state machines, assignors, committed offsets.

Pure: requests and timers in, records and replies out. The state is the result of replaying
`__consumer_offsets`, plus the state that the classic protocol keeps in memory only (members that have
joined, requests that wait).

Imports: `coordination`, `metadata`, `wire`, `records`, `ports`, `model`.
Used by: `broker.coordinators`, which runs `GroupShard` over the log, and the handlers of group APIs.
"""
