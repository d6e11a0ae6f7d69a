"""shalott-nats and shalott-etcd in containers: whole runs, and a loss that a manual admits."""

from __future__ import annotations

import pytest

from shalott.harness.testing import pytest_plugin as plugin

pytestmark = [pytest.mark.docker, pytest.mark.nightly("builds images, and minutes of runs")]

FAULTS = {"nemesis": "kill,pause,partition", "time_limit": "45s", "rate": 60, "seed": 1}
POWER = {"nemesis": "power-all", "nemesis_interval": "20s", "time_limit": "30s", "seed": 5}


@pytest.mark.parametrize("version", ["2.12.1", "2.15.3"])
@pytest.mark.parametrize("workload", [{}, {"workload": "partitions", "longest": "1"}])
def test_jetstream_keeps_what_it_synced(
    shalott: plugin.Shalott,
    version: str,
    workload: dict[str, str],
) -> None:
    run = shalott.run(
        system="nats", load="shalott_nats", cluster="docker", profile="safe", version=version,
        **FAULTS, **workload,
    )  # fmt: skip
    run.assert_valid()


def test_jetstream_loses_by_default_what_it_had_not_synced(shalott: plugin.Shalott) -> None:
    run = shalott.run(
        system="nats", load="shalott_nats", cluster="docker", profile="default",
        version="2.12.1", enqueue_fraction=0.9, **POWER,
    )  # fmt: skip
    assert "acknowledged messages were" in run.told()


def test_jetstream_keeps_what_it_has_while_members_leave_and_join(
    shalott: plugin.Shalott,
) -> None:
    run = shalott.run(
        system="nats", load="shalott_nats", cluster="docker", profile="safe", nodes=5, replicas=5,
        workload="partitions", longest="1", rate=60, time_limit="45s", seed=1, nemesis="none",
        sequence="wait 3s; replace-node n4; wait 3s; end; wait 5s; remove-node n2; wait 5s;"
        " add-node n2",
    )  # fmt: skip
    run.assert_valid()


def test_a_bucket_s_registers_are_linearizable_by_reads_at_the_leader(
    shalott: plugin.Shalott,
) -> None:
    """Without cuts: a leader that is cut off answers reads until it notices."""
    run = shalott.run(
        system="nats", load="shalott_nats", cluster="docker", profile="safe", workload="register",
        nemesis="kill", time_limit="45s", rate=60, seed=1,
    )  # fmt: skip
    run.assert_valid()


@pytest.mark.parametrize(
    "workload", [{"workload": "register"}, {"workload": "list-append"},
                 {"workload": "partitions", "longest": "1"}, {"workload": "lock"},
                 {"workload": "etcd-watches", "watch_ahead": "60", "concurrency": "12"}]
)  # fmt: skip
def test_etcd_is_linearizable(
    shalott: plugin.Shalott,
    workload: dict[str, str],
) -> None:
    run = shalott.run(
        system="etcd", load="shalott_etcd", cluster="docker", profile="safe", **FAULTS, **workload
    )
    run.assert_valid()
