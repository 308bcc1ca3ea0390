"""Facts with their source and date."""
