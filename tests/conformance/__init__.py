"""The harness that runs other people's tests."""
