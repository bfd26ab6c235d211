"""Throttles of reassignments: what they change, what they remember, and the requests that set and end them.

Pure: values and responses in, changes and requests out. `penstock partition reassign` and the console set
throttles with the same code, and the controller ends those that a client has left behind.
"""
