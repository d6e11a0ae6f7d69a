"""The page of a report over many runs: what it counts (data), and index.html."""
