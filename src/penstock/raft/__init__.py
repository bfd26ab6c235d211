"""The consensus core of the metadata quorum: KRaft, in which followers fetch.

`node` has the contract with its driver: events in, one `Ready` out.

Owns: the state of the quorum and its roles. Disk, network and clock are the caller's.
Imports: `wire`, `records`, `ports`, `model`.
Used by: `broker.node`, which drives it over the metadata log and connections to other nodes.
"""
