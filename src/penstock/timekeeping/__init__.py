"""Decides whether a wall clock may be used to delete something: readings and comparisons in, verdicts out.

`trust` judges the clock of one broker, `rounds` the rounds of retention. Neither does I/O.
"""
