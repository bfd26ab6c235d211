"""Two-phase transactions from the side of an external coordinator (KIP-939): prepare, decide, clean up.

`outcomes` has the requests and what their error codes mean; it does no I/O. `prepared` sends them over
blocking connections. Neither writes messages: any producer does, also one whose library lacks KIP-939.

Imports: `reading` (connections), `wire`, `net` (errors), `model`.
Used by: `client`, and external coordinators such as a sink.
"""
