"""Runs on a page of one's own machine: the report while it grows, a calculator, and what each model sees on a picture."""
