"""Redis and Valkey under test: Sentinel and cluster, by shalott.api alone."""
