"""Explain a run to people and machines."""
