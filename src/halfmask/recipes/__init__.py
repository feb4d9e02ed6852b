"""Experiments as files."""
