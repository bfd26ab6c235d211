"""Copies of sealed segments in an archive, which the leaders of partitions make (ADR 83).

`selection` decides what to copy, `schedule` whose turn it is, `bandwidth` how fast. `building` and
`turn_objects` make, put and verify objects, `copying` continues the chain of manifests. `proof` shows that
an archive has what a broker is about to remove from its own disk (ADR 90), `expiry` what is to leave the
archive.

Imports: `remote`, `archive`, `storage`, `records`, `timekeeping`, `ports` and `model`.
Used by: the broker.
"""
