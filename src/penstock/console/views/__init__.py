"""The contents of pages, computed from responses of brokers. No I/O and no clock: the time is an argument."""
