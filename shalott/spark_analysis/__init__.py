"""Reports over any number of stored runs: find the runs (stored_runs.py), judge them with an engine
(findings.py: kernels/ in worker processes or in Spark's, or sql/), write the report (report.py)."""
