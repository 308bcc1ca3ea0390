"""Start ranks through an existing engine; the worker is what each rank runs."""
