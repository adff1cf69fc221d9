"""One module per command; pate/cli.py mounts them. Heavy imports stay inside the functions."""
