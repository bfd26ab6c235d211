"""The vocabulary that every other package shares: ids, error codes, the exception tree, config keys."""
