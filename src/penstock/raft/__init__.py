"""The metadata quorum's consensus core: KRaft, pulled over Fetch. Pure; `node` has the driver's contract."""
