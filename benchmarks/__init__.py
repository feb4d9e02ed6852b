"""One file per claim in the README; each prints ratios, side by side, measured in one run."""
