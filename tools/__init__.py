"""What the Makefile needs before anything is installed: Python's own library only."""
