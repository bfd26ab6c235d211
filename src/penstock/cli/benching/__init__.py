"""The load generator of `penstock bench`: latencies, and the clients that send and receive."""
