"""Ways to reach a replica. All of them pass the one conformance suite in `tests/contract`."""
