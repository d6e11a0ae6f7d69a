"""The page of a report over many runs: its data (page_data.py), and index.html."""
