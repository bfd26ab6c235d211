"""The wire protocol: bytes to messages and back, without I/O.

`schema` is how tables are written, `apis`, `metadata_records` and `control_records` are the tables,
`compiler` turns them into codecs, `messages` adds headers. `conversation` is the client side of a connection,
`routing` a client's view of the cluster. Peers are not trusted: any bytes decode to a message or raise
ProtocolError.
"""
