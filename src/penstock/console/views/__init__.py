"""What pages show, computed from responses of brokers. No I/O and no clock: the time is an argument."""
