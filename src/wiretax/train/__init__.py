"""Run real training steps: what is trained (workload), how it is spread (one file a strategy), and what one GPU says of it."""
