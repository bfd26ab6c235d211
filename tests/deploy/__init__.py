"""Tests of the files in deploy/: the image, compose, systemd, the chart."""
