"""This process as a node of its cluster: metadata quorum, cluster image, active controller, other nodes.

Owns: the metadata log and its snapshots, the Raft node and its driver, the cluster image, the connections to
other nodes, and the work of the active controller (sessions, elections, healing, balancing).
Imports: `broker.replica` (throttles only), `broker.base`, and the packages `raft`, `metadata` and `storage`.
Used by: the handlers and `broker.request`. `broker.app` composes it, and passes callbacks to `broker.replica`
and `broker.healing`, which reach the controller and other nodes through them.
"""
