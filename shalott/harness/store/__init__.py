"""The table of a store's runs, runs.parquet: a row a run, made of the files in its directory."""
