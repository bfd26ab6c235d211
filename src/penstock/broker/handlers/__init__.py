"""The handlers of requests: one module per API or family of APIs.

Owns: the decoding of a request's fields into calls of the other packages, and the encoding of their results.
A handler is a class whose constructor takes its dependencies.
Imports: every package of `broker` but `app` and `request`.
Used by: `broker.app`, which builds the handlers (`app.routes`) and passes them to `broker.request`.
"""
