"""Values of messages as typed columns: what tables of topics, frames and the Spark source share.

`decoding` makes values of Python of bytes: JSON, or by the schemas of a registry. `avro_types`,
`protobuf_types` and `json_schema_types` say which columns a schema has, and `inference` which ones values
have. `fitting` makes columns of values, and says in words why a value does not fit. `types` has the rules of
evolution: columns are added, and never change.

Invariant: columns are types of Arrow that Delta has, too. A field whose metadata is `AS_JSON` has no single
type; its values are kept as JSON text.

Imports: `registry` and `model`.
Used by: `tables`, `frames` and `spark`.
"""
