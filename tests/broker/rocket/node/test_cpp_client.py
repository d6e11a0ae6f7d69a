"""An original's client on our broker: finds it through our name server, sends, pulls, is pushed to.

It speaks the protocol of 2018: routes of topics that are not there yet, plain sends, batches under
the code of single sends, numbers where Java has text.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.rocket.node.cpp_client import run_cpp_client
from tests.world.processes.rocket import running_rocket_nodes

pytestmark = pytest.mark.local

COUNT = 20


@pytest.mark.parametrize("names", [("n1",), ("n1", "n2")], ids=["alone", "with a slave"])
def test_the_cpp_client_produces_and_consumes(tmp_path: Path, names: tuple[str, ...]) -> None:
    with running_rocket_nodes(tmp_path, names) as nodes:
        # This client takes a master whose slave has not come yet for one that it has no route to.
        nodes[0].await_claims(lambda seen: len(seen["claims"][0]["synchronised"]) == len(names) - 1)
        name_servers = ";".join(node.address("nameserver") for node in nodes)
        said = run_cpp_client(tmp_path, name_servers, "Fresh", COUNT)
    assert [status for status, *_ in said["sent"]] == ["OK"] * (COUNT + 1)
    singles = [offset for _, offset, _ in said["sent"][:COUNT]]
    assert max(singles) < COUNT and singles[0] == 0
    wanted = sorted(
        [
            "one-way",
            *(f"single-{n}" for n in range(COUNT)),
            *(f"batch-{n}" for n in range(COUNT)),
        ]
    )
    assert said["pulled"] == wanted
    assert said["pushed"] == wanted
