"""What people look at after a run: plots, one self-contained page, and runs side by side."""
