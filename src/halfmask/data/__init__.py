"""Datasets as records: one file per format, and the embedded `figures` world."""
