"""The one thing that pyproject.toml can't say: the checkers' engine is built from C."""

from setuptools import setup

setup(cffi_modules=["checkers/engine/build_engine.py:ffi"])
