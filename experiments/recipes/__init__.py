"""Recipes: what a run is made of, in TOML, checked before anything is touched."""
