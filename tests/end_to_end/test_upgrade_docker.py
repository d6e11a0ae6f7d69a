"""A rolling upgrade in containers, from our own image to another one that is made from it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from shalott.cluster.docker.engine import connect
from shalott.harness.cli.machines import prepare_images
from tests.end_to_end.leftovers import docker_leftovers
from tests.end_to_end.runs import shalott

pytestmark = pytest.mark.docker

NEXT = "shalott-test-upgrade:next"


@pytest.fixture
def next_image() -> Iterator[str]:
    """The id of an image that is ours with another label."""
    told: list[str] = []
    prepare_images(["mirrored"], told.append)
    own = told[-1].removesuffix(" is there.")
    api: docker.APIClient = connect()
    recipe = io.BytesIO(f"FROM {own}\nLABEL shalott.test=next\n".encode())
    for line in api.build(fileobj=recipe, tag=NEXT, rm=True, forcerm=True, decode=True):
        assert "error" not in line, line
    try:
        yield str(api.inspect_image(NEXT)["Id"])
    finally:
        api.remove_image(NEXT, force=True)
        api.close()


def test_every_node_comes_back_from_the_other_image(next_image: str, tmp_path: Path) -> None:
    run = shalott(
        [
            *("test", "--cluster", "docker", "--profile", "safe", "--net-tick", "2s"),
            *("--nemesis", "rolling-upgrade", "--upgrade-to", NEXT),
            *("--time-limit", "30", "--nemesis-interval", "30", "--nemesis-duration", "1"),
            *("--rate", "50", "--seed", "3"),
        ],
        tmp_path,
    )
    assert run.exit_code == 0, run
    (fault,) = run.rows("rolling-upgrade")
    assert fault["extra"]["rolled"] == ["n1", "n2", "n3"] and fault["error"] is None
    probes = [row["extra"] for row in run.rows("probe")]
    seen = {each["check"]: each["seen"] for each in probes if each["check"].startswith("image")}
    assert seen == {f"image {node}": next_image for node in ("n1", "n2", "n3")}
    # What a node printed before and after is in one file.
    for node in ("n1", "n2", "n3"):
        printed = (run.directory.path / "nodes" / node / "output.log").read_text()
        assert printed.count("the broker runs") == 2
    assert docker_leftovers(run) == []


def test_an_image_that_is_not_there_is_refused_before_a_node_starts(tmp_path: Path) -> None:
    run = shalott(
        [
            *("test", "--cluster", "docker", "--nemesis", "rolling-upgrade"),
            *("--upgrade-to", "no-such-thing:1", "--time-limit", "30"),
        ],
        tmp_path,
    )
    assert run.exit_code == 255
    assert "there is no image no-such-thing:1: name a recipe (" in run.stderr
