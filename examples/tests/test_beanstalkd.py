"""beanstalkd under faults, a test each: ``pytest -k pause examples/tests``.

Syncing each write it keeps every job, also over a loss of power; with its default it does not.
"""

import pytest

JOBS = {"system": "beanstalkd", "load": "shalott_beanstalkd", "cluster": "docker", "rate": 50}
BRIEF = {"op_timeout": "1s", "nemesis_interval": "4s", "nemesis_duration": "3s", "seed": 1}


@pytest.mark.shalott_nemeses("kill", "pause")
def test_no_job_is_lost(shalott):
    run = shalott.run(**JOBS, **BRIEF, profile="safe", time_limit="15s")
    run.assert_valid()
    assert "acknowledged jobs was lost" in run.headline


def test_a_loss_of_power_takes_what_was_not_synced(shalott):
    brief = {**BRIEF, "nemesis": "power-all", "power_loss": "drop", "time_limit": "12s"}
    shalott.run(**JOBS, **brief, profile="safe").assert_valid()
    lost = shalott.run(**JOBS, **brief, profile="upstream", fsync_ms="10s")
    lost.assert_invalid("lost")
