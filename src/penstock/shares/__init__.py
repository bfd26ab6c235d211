"""Share groups (KIP-932): share partitions, share sessions, and the share coordinator's state.

A share partition is one partition as one share group consumes it. Its leader keeps the state of each record
in flight. The share coordinator keeps the part of that state that has to survive the leader, in
`__share_group_state`. The membership of share groups is part of `groups`.

Imports: `coordination`, `metadata`, `wire`, `records`, `ports`, `model`. No I/O and no clock.
Used by: `broker.shares` and `broker.coordinators`.
"""
