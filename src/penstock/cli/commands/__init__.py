"""One file per sub-command: its options, its help and its output.

May import every other part of `penstock.cli`. Imported by `penstock.cli.app` alone.
"""
