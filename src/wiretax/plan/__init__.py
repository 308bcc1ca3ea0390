"""What it costs and what to rent. Pure: predictions, prices and limits in, a plan out; no files, no torch, no clock."""
