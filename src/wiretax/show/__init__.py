"""Explains a run: on a terminal, as text to paste. Knows only the model, never a machine."""
