"""``shalott ctl``: whom it asks what, how it tells the answers, and what it refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from shalott.core.errors import UsageError
from shalott.harness.cli.ctl import VERBS, Answer, ask, read_endpoints
from shalott.harness.cli.main import run_command
from shalott.harness.run.store import ENDPOINTS, PLAN
from tests.world.harness.listening import FakeNode, listening
from tests.world.processes.rocket import running_rocket_nodes

pytestmark = pytest.mark.local


def stored_run(tmp_path: Path, **nodes: FakeNode) -> Path:
    """A store whose latest run has these nodes."""
    run = tmp_path / "store" / "latest"
    run.mkdir(parents=True)
    (run / PLAN).write_text("{}")
    noted = {name: {"management": ["127.0.0.1", node.port]} for name, node in nodes.items()}
    (run / ENDPOINTS).write_bytes(msgspec.json.encode(noted))
    return tmp_path / "store"


def ctl(*words: str) -> int:
    return run_command(["ctl", *words])


def test_a_question_goes_to_every_node_and_is_told_as_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = {"master": True, "haConnectionInfo": [{"slave": "n2", "diff": 0}, {"slave": "n3"}]}
    first, second = FakeNode(200, status), FakeNode(503, {"error": "x", "reason": "booting"})
    with listening(first, second):
        store = stored_run(tmp_path, n1=first, n2=second)
        assert ctl("ha-status", "--store", str(store)) == 0
    assert first.asked == [("GET", "/api/shalott/ha-status", b"")] and len(second.asked) == 1
    assert capsys.readouterr().out.splitlines() == [
        "n1:",
        "  master                    True",
        "  haConnectionInfo:",
        "    slave  diff",
        "    n2     0",
        "    n3     -",
        "n2: refused with 503: booting",
    ]


def test_answers_can_be_had_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = FakeNode(200, {"epochList": [{"epoch": 1, "startOffset": 0}]})
    with listening(node):
        store = stored_run(tmp_path, n1=node)
        assert ctl("epoch-cache", "--node", "n1", "--json", "--store", str(store)) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told == {"n1": {"epochList": [{"epoch": 1, "startOffset": 0}]}}


def test_a_promotion_goes_to_the_node_that_is_named(tmp_path: Path) -> None:
    first, second = FakeNode(200, {}), FakeNode(200, {"role": "master"})
    with listening(first, second):
        store = stored_run(tmp_path, n1=first, n2=second)
        code = ctl("promote", "--node", "n2", "--epoch", "4", "--store", str(store))
    assert code == 0 and not first.asked
    assert second.asked == [("POST", "/api/shalott/promote", b'{"epoch":4}')]


def test_an_endpoint_needs_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    node = FakeNode(200, {"role": "slave"})
    with listening(node):
        place = f"127.0.0.1:{node.port}"
        assert ctl("follow", "--endpoint", place, "--master", "n1", "--epoch", "3") == 0
    assert node.asked == [("POST", "/api/shalott/follow", b'{"master":"n1","epoch":3}')]


def claims_of(role: str, epoch: int) -> dict[str, object]:
    return {"claims": [{"role": role, "epoch": epoch}]}


def test_a_slave_follows_in_the_epoch_that_its_master_tells(tmp_path: Path) -> None:
    old, new, other = FakeNode(200, {}), FakeNode(200, claims_of("master", 7)), FakeNode(200, {})
    with listening(old, new, other):
        store = stored_run(tmp_path, n1=old, n2=new, n3=other)
        assert ctl("follow", "--node", "n1", "--master", "n2", "--store", str(store)) == 0
    assert new.asked == [("GET", "/api/shalott/claims", b"")] and not other.asked
    assert old.asked == [("POST", "/api/shalott/follow", b'{"master":"n2","epoch":7}')]


@pytest.mark.parametrize(
    ("status", "said", "sentence"),
    [
        (200, claims_of("slave", 7), "n2: it is slave, and no master: promote it first, or give"),
        (200, {"claims": []}, "n2: it is no broker, and no master: promote it first, or give"),
        (503, {"reason": "booting"}, "n2: refused with 503: booting"),
    ],
)
def test_who_is_no_master_tells_no_epoch_to_follow_in(
    status: int, said: object, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = FakeNode(200, {}), FakeNode(status, said)
    with listening(old, new):
        store = stored_run(tmp_path, n1=old, n2=new)
        assert ctl("follow", "--node", "n1", "--master", "n2", "--store", str(store)) == 1
    assert sentence in capsys.readouterr().out
    assert not old.asked


def test_an_election_is_asked_of_one_after_the_other_until_one_takes_it() -> None:
    nodes = [
        FakeNode(503, {"reason": "no leader"}),
        FakeNode(200, {"master": "n2"}),
        FakeNode(200, {}),
    ]
    with listening(*nodes):
        places = {f"n{i}": ("127.0.0.1", node.port) for i, node in enumerate(nodes, 1)}
        answers = asyncio.run(ask(VERBS["elect-master"], places, {"broker": "n2"}))
    assert answers == [Answer("n2", True, {"master": "n2"})]
    assert [len(node.asked) for node in nodes] == [1, 1, 0]


def test_nobody_who_answers_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    node = FakeNode(400, {"error": "bad_request", "reason": "this is no slave"})
    with listening(node):
        assert ctl("promote", "--endpoint", f"127.0.0.1:{node.port}") == 1
    assert "refused with 400: this is no slave" in capsys.readouterr().out
    assert ctl("claims", "--endpoint", f"127.0.0.1:{node.port}") == 1


def test_real_brokers_are_told_by_name_and_follow_in_their_masters_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one host, where addresses name nobody."""

    def connections(of: str) -> list[dict[str, object]]:
        capsys.readouterr()
        assert ctl("ha-status", "--node", of, "--json", "--store", str(store)) == 0
        told = msgspec.json.decode(capsys.readouterr().out)[of]
        assert told["node"] == of
        return list(told["haConnectionInfo"])

    with running_rocket_nodes(tmp_path / "nodes", ("n1", "n2")) as (first, second):
        ports = {
            node.name: {"management": ["127.0.0.1", node.config.ports["management"]]}
            for node in (first, second)
        }
        store = stored_run(tmp_path)
        (store / "latest" / ENDPOINTS).write_bytes(msgspec.json.encode(ports))
        first.await_claims(lambda seen: seen["claims"][0]["synchronised"] == ["n2"])
        assert [one["slave"] for one in connections("n1")] == ["n2"]
        at = ("--store", str(store))
        assert ctl("follow", "--node", "n1", "--master", "n2", "--epoch", "5", *at) == 0
        assert ctl("promote", "--node", "n2", "--epoch", "5", *at) == 0
        assert ctl("promote", "--node", "n2", *at) == 0  # once more: the epoch is 6 now
        assert ctl("follow", "--node", "n1", "--master", "n2", *at) == 0
        seen = first.await_claims(lambda seen: seen["claims"][0]["agreed"])["claims"][0]
        assert (seen["role"], seen["master"], seen["epoch"]) == ("slave", "n2", 6)
        second.await_claims(lambda seen: seen["claims"][0]["synchronised"] == ["n1"])
        assert [one["slave"] for one in connections("n2")] == ["n1"]


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "an unknown verb": (("demote",), "unknown verb demote: did you mean promote"),
    "a promotion of nobody": (("promote",), "say which broker it is about, with --node"),
    "following nobody": (("follow", "--endpoint", "h:1"), "say whom, with --master"),
    "following without an epoch": (
        ("follow", "--endpoint", "h:1", "--master", "n2"),
        "without a run it is not known where n2 can be asked for its epoch: give --epoch",
    ),
    "following a stranger": (
        ("follow", "--node", "n1", "--master", "n9"), "--master n9: the run has n1",
    ),
    "an endpoint that is none": (("claims", "--endpoint", "h"), "give host:port"),
    "what means nothing": (
        ("claims", "--endpoint", "h:1", "--epoch", "2"), "--epoch means nothing to claims",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, sentence = REFUSED[case]
    store = stored_run(tmp_path, n1=FakeNode(200, {}))
    assert ctl(*words, "--store", str(store)) == 254
    assert sentence in capsys.readouterr().err


def test_a_run_that_did_not_boot_says_nothing_of_its_nodes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say where its nodes listen"):
        read_endpoints(tmp_path / ENDPOINTS)
    (tmp_path / ENDPOINTS).write_text('{"n1": 5}')
    with pytest.raises(UsageError, match="is damaged"):
        read_endpoints(tmp_path / ENDPOINTS)
    assert ctl("claims", "--node", "n9", "--store", str(stored_run(tmp_path))) == 254
