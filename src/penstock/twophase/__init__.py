"""Two-phase transactions from the side of an external coordinator (KIP-939): prepare, decide, clean up.

`outcomes` has the requests and what their error codes mean; it does no I/O. `coordinators` sends them over
blocking connections, until they are carried out; `prepared` is what applications call. None writes messages:
any producer does, also one whose library lacks KIP-939.

Imports: `reading` (connections), `wire`, `net` (errors), `model`.
Used by: `client`, `cli`, and the exactly-once sink of `spark`.
"""
