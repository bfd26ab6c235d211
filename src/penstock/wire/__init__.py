"""The wire protocol: bytes to messages and back, without I/O.

`schema` is how tables are written, `apis`, `metadata_records` and `control_records` are the tables,
`compiler` turns them into codecs, `messages` puts headers around them. `conversation` is the asking side of a
connection, `routing` knows whom to ask. Peers are not trusted: whatever bytes come in, decoding yields a
message or raises ProtocolError.
"""
