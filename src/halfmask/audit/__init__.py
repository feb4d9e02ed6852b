"""Attacks on a trained model and on its mechanism: what leaked, beside what was promised."""
