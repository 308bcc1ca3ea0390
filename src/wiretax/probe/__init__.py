"""Ask the machine: read-only, no load."""
