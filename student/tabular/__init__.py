"""Students for tables."""
