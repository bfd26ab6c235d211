"""Audit events outside of a broker: the chain of hashes that makes removal visible, its check, and syslog.

Imports: no other package. Does no I/O.
Used by: the broker's audit sinks, and `penstock audit verify`.
"""
