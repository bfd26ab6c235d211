"""Share partitions of the partitions that this broker leads: ShareFetch and ShareAcknowledge.

Owns: the share partitions, their acquisitions and their acknowledgements.
Imports: `coordinators`, which persist the state of share partitions, `fetch`, `replica`, `base`.
Used by: `handlers`.
"""
