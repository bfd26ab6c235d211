"""The archive: sealed segments in an object store, described by a chain of manifests.

Tiered storage and backups write the same format; `docs/archive.md` specifies it. This package decides what
the objects contain, which of them are named, and whether bytes are what was written. It reaches an object
store only through `penstock.ports.ObjectStore`.
"""
