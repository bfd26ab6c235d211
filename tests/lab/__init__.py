"""The lab: what is fetched and built once."""
