"""Logs on disk: segments, indexes, recovery, retention, compaction, repairs, and data directories.

Reaches disks only through `ports.Files`. Imports records, model and ports. Called by the
broker and by the commands that work on a stopped broker's files.
"""
