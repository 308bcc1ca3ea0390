"""Load the wires. torch lives here, imported lazily."""
