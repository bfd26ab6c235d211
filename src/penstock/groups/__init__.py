"""Consumer groups: classic and KIP-848 state machines, assignors, committed offsets.

Everything here is pure: events in, records and answers out. State is what replaying `__consumer_offsets` adds
up to, plus what the classic protocol keeps in memory only (who has joined so far, who waits for an answer).
`penstock.broker.coordinators.runtime` drives it.
"""
