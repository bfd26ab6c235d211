"""The benchmark's arithmetic and tables."""
