"""``shalott test --cluster sim``: a whole run, stored like any other, in virtual time."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from shalott.core.errors import UsageError
from shalott.harness.cli.commands import make_app

pytestmark = pytest.mark.sim


def run(store: Path, *arguments: str) -> Result:
    words = [
        "test",
        "--cluster",
        "sim",
        "--store",
        str(store),
        "--time-limit",
        "15",
        "--rate",
        "40",
    ]
    return CliRunner().invoke(make_app(), [*words, *arguments])


def digest_of(done: Result) -> str:
    found = re.search(r"Digest: ([0-9a-f]{32}) ", done.output)
    assert found is not None, done.output
    return found.group(1)


def test_a_partition_under_upstream_loses_messages_and_the_digest_repeats(tmp_path: Path) -> None:
    arguments = ("--profile", "upstream", "--nemesis", "partition", "--seed", "7")
    first, second = run(tmp_path, *arguments), run(tmp_path, *arguments)
    assert first.exit_code in (0, 1), first.output
    assert digest_of(first) == digest_of(second)
    latest = tmp_path / "latest"
    for name in ("plan.json", "simulation.json", "results.json", "report.html", "junit.xml"):
        assert (latest / name).stat().st_size > 0, name
    assert pq.read_table(latest / "history.parquet").num_rows > 100
    assert pq.read_table(latest / "events.parquet").num_rows > 10
    assert (latest / "nodes" / "n1" / "output.log").stat().st_size > 0


def test_power_losses_of_one_node_at_a_time_lose_nothing_under_safe(tmp_path: Path) -> None:
    done = run(tmp_path, "--profile", "safe", "--nemesis", "power", "--seed", "3")
    assert done.exit_code == 0, done.output


def test_what_the_simulation_does_not_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "--system", "rabbitmq")
    assert isinstance(done.exception, UsageError)
    assert "does not run there: use --cluster docker or ssh" in str(done.exception)
