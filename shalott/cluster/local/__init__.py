"""The local backend: one process a node on loopback, links through relays of our own."""
