"""Think: pure functions from model to model."""
