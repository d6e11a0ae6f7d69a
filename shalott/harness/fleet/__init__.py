"""Many runs: the table of all runs of a store, and nights of them."""
