"""Parse, call one job, print, return an exit code."""
