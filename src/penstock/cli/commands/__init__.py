"""One file per sub-command: its options, its help and its output.

The signature of a command is the table of its options, which may be long. Its body is short.

Owns: the sub-commands.
Imports: every other part of `penstock.cli`.
Used by: `penstock.cli.app` alone.
"""
