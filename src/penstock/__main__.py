"""`python -m penstock` is the `penstock` command. Its path has no working directory (`__init__`)."""

from penstock.cli import main

main()
