"""The table runs.parquet: a row a run."""
