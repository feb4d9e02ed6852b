"""The loop, its settings, its outputs."""
