"""The vocabulary that every other package shares: ids, error codes, the exception tree, config keys.

Owns: no state; all types are values.
Imports: no other package.
Used by: every package.
"""
