"""The web console: a process of its own that reads and changes any Kafka cluster over the wire.

`views` turns responses into what pages show and does no I/O. `kafka` sends requests. `web` serves pages,
JSON and server-sent events. `static` has the pages: hand-written ES modules and CSS, without a build step.

Imports: `client.partitioners`, `registry`, `net`, `reassignment`, `observability`, `wire`, `records`,
`security`, `ports` and `model`. An import contract keeps the broker out.
Used by: `penstock console` and `penstock up --console`.
"""
