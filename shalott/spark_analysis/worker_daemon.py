"""Spark's own daemon, which forks the Python workers, with what they need imported beforehand.

Started by Spark as ``python -m`` (spark.python.daemon.module), on this machine only: elsewhere our
code comes with the job.
"""

from __future__ import annotations

from pyspark.daemon import manager

import shalott.spark_analysis.spark_kernels  # noqa: F401

if __name__ == "__main__":
    manager()
