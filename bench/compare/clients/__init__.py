"""Load clients: one module for each client library, and `protocol`, which is the same for all.

They run in an environment that has the libraries and not Penstock, so they import each other and nothing
else of this repository.
"""
