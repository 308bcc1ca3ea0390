"""What we know: frozen dataclasses with units in their names. No I/O, no torch, no clock."""
