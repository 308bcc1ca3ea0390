"""One file a subject; each turns a run into findings."""
