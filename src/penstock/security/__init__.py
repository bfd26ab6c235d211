"""Security without I/O: principals, sessions, SASL, and the rules of authorisation.

Modules of this package import only `model`. TLS and sockets are in `net`.
"""
