"""A page over a store of runs, and the JSON behind it: read-only."""
