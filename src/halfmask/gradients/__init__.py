"""The mechanism: clipped sums, the subspace, the one step."""
