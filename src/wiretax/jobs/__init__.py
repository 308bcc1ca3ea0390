"""One file a job; the only place that joins the folders."""
