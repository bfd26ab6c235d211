"""The wire protocol: bytes to messages and back, without I/O.

`schema` is how tables are written, `apis` and `metadata_records` are the tables, `compiler` turns them into
codecs, `messages` puts headers around them, and `frames` is the asking side of a connection. Peers are not
trusted: whatever bytes come in, decoding yields a message or raises ProtocolError.
"""
