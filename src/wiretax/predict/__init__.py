"""Predict: pure functions."""
