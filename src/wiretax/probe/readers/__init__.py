"""Pasted text into the model, one file a format."""
