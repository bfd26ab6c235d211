"""Stage 5: alerts. `features` says what is looked at, `fleet` what is remembered, `rules` what is wrong, and
`incidents` when something wrong becomes an alert and when that is over."""

from penstock.telemetry.pipeline.detectors.incidents import Alert, Detectors

__all__ = ["Alert", "Detectors"]
