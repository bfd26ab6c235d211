"""Checks requests before their handlers run, and removes from responses what a client must not see.

Owns: the table of the operations that each API needs, and the checks.
Imports: `broker.base`.
Used by: `broker.app`, which wraps the handlers of a broker that has an authorizer.
"""
