"""What an original's answers mean, and what they leave unknown."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.cluster.systems.rocket.settling import why_unsettled
from shalott.cluster.systems.rocketmq_original import observing

pytestmark = pytest.mark.unit

RUNTIME = {
    "commitLogMaxOffset": "15960",
    "commitLogMinOffset": "0",
    "dispatchBehindBytes": "60",
    "remainHowManyDataToFlush": "100 B",
}
HA = {
    "master": True,
    "masterCommitLogMaxOffset": 15960,
    "haConnectionInfo": [
        {"addr": "/10.1.1.12:37632", "slaveAckOffset": 15960, "inSync": True},
        {"addr": "10.1.1.13:37012", "slaveAckOffset": 15000, "inSync": False},
    ],
    "haClientRuntimeInfo": None,
}
EPOCHS = {"epochList": [{"epoch": 1, "startOffset": 0}, {"epoch": 4, "startOffset": 900}]}


def name_of(address: str) -> str:
    host = address.rpartition(":")[0]
    return {"10.1.1.11": "n1", "10.1.1.12": "n2", "10.1.1.13": "n3"}.get(host, "")


def claim(properties: dict[str, str], **answers: Any) -> dict[str, Any]:
    given = {"ha": None, "epochs": None, "raft": None, **answers}
    return observing.claim_of(
        "n1", properties, RUNTIME, name_of=name_of, member_names={"n0": "n1", "n1": "n2"}, **given
    )


def test_a_master_under_controllers() -> None:
    found = claim({"brokerId": "0", "brokerRole": "SYNC_MASTER"}, ha=HA, epochs=EPOCHS)
    assert (found["role"], found["epoch"], found["master"]) == ("master", 4, "n1")
    assert (found["mirrors"], found["synchronised"]) == (["n2", "n3"], ["n2"])
    assert (found["end_offset"], found["readable_offset"]) == (15960, 15900)
    assert found["flushed_offset"] == 15860
    assert found["unknown"] == []


@pytest.mark.parametrize(
    ("told", "role"), [("ASYNC_MASTER", "none"), ("SYNC_MASTER", "master"), ("SLAVE", "slave")]
)
def test_an_elected_broker_that_hides_its_id_is_known_by_its_role(told: str, role: str) -> None:
    """5.0.0 answers with the id that stands in its file."""
    found = claim({"brokerId": "-1", "brokerRole": told, "enableControllerMode": "true"})
    assert (found["role"], found["broker_id"]) == (role, None)


def test_an_elected_broker_that_tells_its_id_is_known_by_it() -> None:
    """The id decides, whatever its role says."""
    told = {"brokerId": "0", "brokerRole": "ASYNC_MASTER", "enableControllerMode": "true"}
    found = claim(told)
    assert (found["role"], found["broker_id"]) == ("master", 0)


def test_a_slaves_epoch_is_unknown() -> None:
    """Its list grows only when data of the new epoch arrives."""
    ha = {"master": False, "haClientRuntimeInfo": {"masterAddr": "10.1.1.12:10912"}}
    found = claim({"brokerId": "2", "brokerRole": "SLAVE"}, ha=ha, epochs=EPOCHS)
    assert (found["role"], found["epoch"], found["master"]) == ("slave", None, "n2")
    assert found["unknown"] == ["epoch"] and found["log_epochs"] == [[1, 0], [4, 900]]


def test_a_slave_that_follows_nobody_says_so() -> None:
    """That is told, and no reason to take a cluster for settled."""
    ha = {"master": False, "haClientRuntimeInfo": {"masterAddr": None}}
    found = claim({"brokerId": "2", "brokerRole": "SLAVE"}, ha=ha, epochs=EPOCHS)
    assert found["master"] is None and "master" not in found["unknown"]
    master = claim({"brokerId": "0", "brokerRole": "SYNC_MASTER"}, ha=HA, epochs=EPOCHS)
    seen = {
        node: {"services": ["broker"], "claims": [one]}
        for node, one in {
            "n1": {**master, "readable_offset": 15960},
            "n2": {**found, "readable_offset": 15960},
        }.items()
    }
    assert why_unsettled(seen) == "n2 is slave and follows no node"


def test_a_release_without_ha_status_leaves_unknown_whom_a_slave_follows() -> None:
    master = claim({"brokerId": "0", "brokerRole": "SYNC_MASTER"})
    slave = claim({"brokerId": "1", "brokerRole": "SLAVE"})
    assert master["unknown"] == ["epoch", "synchronised"]
    assert slave["unknown"] == ["epoch", "master"]
    ends = {"readable_offset": 15960}
    seen = {
        "n1": {"services": ["broker"], "claims": [{**master, **ends}]},
        "n2": {"services": ["broker"], "claims": [{**slave, **ends}]},
    }
    assert why_unsettled(seen) == ""
    behind = {
        "n1": seen["n1"],
        "n2": {**seen["n2"], "claims": [{**slave, **ends, "end_offset": 1}]},
    }
    assert why_unsettled(behind) == "n2's end offset is 1, and the master's log ended at 15960"


@pytest.mark.parametrize(
    ("properties", "role"),
    [
        ({"brokerId": "-1", "brokerRole": "ASYNC_MASTER"}, "none"),
        ({"brokerId": "0", "brokerRole": "ASYNC_MASTER"}, "master"),
        ({"brokerId": "0", "brokerRole": "SLAVE"}, "slave"),
        ({"brokerId": "3", "brokerRole": "SLAVE"}, "slave"),
        (
            {"brokerId": "0", "brokerRole": "ASYNC_MASTER", "enableDLegerCommitLog": "true"},
            "none",
        ),
        (
            {"brokerId": "0", "brokerRole": "SYNC_MASTER", "enableDLegerCommitLog": "true"},
            "master",
        ),
    ],
)
def test_roles(properties: dict[str, str], role: str) -> None:
    assert observing.role_of(properties) == role


def test_a_term_that_changed_meanwhile_is_unknown() -> None:
    properties = {"brokerId": "0", "brokerRole": "SYNC_MASTER", "enableDLegerCommitLog": "true"}
    found = claim(properties, raft={"leaderId": "n0", "term": None})
    assert found["role"] == "master" and found["epoch"] is None
    assert claim(properties, raft={"leaderId": "n0", "term": 3})["epoch"] == 3
    assert claim(properties, raft={"leaderId": "n0", "term": -1})["epoch"] == 0


def test_terms_are_read_from_dledgers_file() -> None:
    assert observing.term_of(b"#Wed Nov 25\nvoteLeader=n1\ncurrTerm=12\n") == 12
    assert observing.term_of(b"") is None


def test_what_is_not_told_to_the_byte_is_unknown() -> None:
    found = observing.claim_of(
        "n1", {}, {**RUNTIME, "remainHowManyDataToFlush": "1.2 KB"}, None, None, None, name_of, {}
    )
    assert found["flushed_offset"] is None


def test_a_name_servers_view() -> None:
    addresses = {"0": "10.1.1.12:10911", "3": "10.1.1.13:10911"}
    info = {"brokerAddrTable": {"broker-a": {"brokerAddrs": addresses}}}
    found = observing.registered(info, name_of)
    assert found["registered"] == ["n2", "n3"] and found["name_server"]["master"] == "n2"
    assert observing.registered({}, name_of)["registered"] == []


def test_a_controllers_view() -> None:
    metadata = {
        "group": "controllers", "isLeader": "true", "controllerLeaderAddress": "10.1.1.11:9878",
    }  # fmt: skip
    replica = {"brokerAddress": "10.1.1.12:10911", "brokerId": 2, "alive": True}
    info = {
        "masterAddress": "10.1.1.12:10911", "masterBrokerId": 2, "masterEpoch": 5,
        "syncStateSetEpoch": 9, "inSyncReplicas": [replica], "notInSyncReplicas": [],
    }  # fmt: skip
    sets = {"replicasInfoTable": {"broker-a": info}}
    found = observing.controller_of(metadata, {"term": 7}, sets, name_of)
    assert (found["role"], found["epoch"], found["leader"]) == ("leader", 7, "n1")
    group = found["groups"]["broker-a"]
    assert (group["master"], group["set"], group["set_epoch"]) == ("n2", ["n2"], 9)
    assert group["ids"] == {"n2": 2} and group["alive"] == ["n2"]
    follower = observing.controller_of({**metadata, "isLeader": "false"}, None, None, name_of)
    assert follower["role"] == "follower" and follower["epoch"] is None
    assert "groups" not in follower
