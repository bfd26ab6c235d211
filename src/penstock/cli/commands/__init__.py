"""One file per sub-command: its options, its help and its output.

The signature of a command is the table of its options, which may be long. Its body is short.

May import every other part of `penstock.cli`. Imported by `penstock.cli.app` alone.
"""
