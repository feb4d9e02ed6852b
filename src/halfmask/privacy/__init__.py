"""The promise: adjacency, accounting, sampling, noise, ledger, certificate."""
