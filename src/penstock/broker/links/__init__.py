"""Cluster links: mirrors of the partitions that this broker leads, and the coordinator of each link.

Owns: connections to source clusters, what they are asked, the appends of mirrored batches.
Imports: `coordinators`, `node`, `replica`, `base`; the rules are in `penstock.linking`.
Used by: `app`, which composes it, and `handlers` and `monitoring`, which read the states.
"""
