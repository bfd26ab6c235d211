"""Security without I/O: principals, sessions, SASL, and the rules of authorisation.

Imports: `model`. TLS and sockets are in `net`.
Used by: `net` (sessions, SASL), `metadata` (ACLs and credentials), `broker.authorization`, the command line.
"""
