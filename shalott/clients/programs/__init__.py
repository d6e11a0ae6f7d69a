"""Clients that are programs of any language, driven over their standard streams."""
