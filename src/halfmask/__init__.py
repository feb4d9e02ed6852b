"""Halfmask: train models that look at people so that they provably do not remember any one of them."""

__version__ = "0.1.0"
