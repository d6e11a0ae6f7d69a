"""Fixtures of what is installed away from the checkout."""

from __future__ import annotations

from tests.examples.installed import installed, with_example

__all__ = ["installed", "with_example"]
