"""Students that spread labels over a graph of public records."""
