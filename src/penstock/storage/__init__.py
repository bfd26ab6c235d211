"""Logs on disk: segments, indexes, recovery, retention, compaction, repairs, and data directories.

Owns: logs and data directories. Reaches disks only through `ports.Files`.
Imports: `records`, `timekeeping`, `ports` and `model`.
Used by: the broker, and the commands that work on a stopped broker's files.
"""
