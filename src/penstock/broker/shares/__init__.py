"""Share partitions of the partitions that this broker leads: ShareFetch and ShareAcknowledge.

Imports: `coordinators`, which persist the state of share partitions, `fetch`, `replica`, `base`.
Used by: `handlers`.
"""
