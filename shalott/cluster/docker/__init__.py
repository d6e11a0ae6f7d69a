"""The docker backend: one container a node, faults by the kernel."""
