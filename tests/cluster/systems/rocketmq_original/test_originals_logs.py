"""What an original's logs tell, by lines as releases 5.3.3 print them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shalott.cluster.systems.rocketmq_original.log_lines import Where
from shalott.cluster.systems.rocketmq_original.system import read_events

pytestmark = pytest.mark.unit

HOSTS = {f"10.1.1.1{number}": f"n{number}" for number in (1, 2, 3)}
RAFT = {"n0": "n1", "n1": "n2", "n2": "n3"}
START = "2026-11-25T20:12:10.000Z INFO Shalott [entry] starting"
SCHEDULER = "[org.apache.rocketmq.controller.impl.DLedgerController$EventScheduler]"


def told(tmp_path: Path, **logs: Sequence[str]) -> list[dict[str, Any]]:
    """The events of node n1, whose services wrote these lines."""
    directory = tmp_path / "n1" / "log"
    directory.mkdir(parents=True)
    for service, lines in logs.items():
        (directory / f"{service}.log").write_text("\n".join([START, *lines]) + "\n")
    where = Where(HOSTS, members=RAFT, controllers=RAFT)
    rows = [dict(row) for row in read_events(tmp_path, 0, where)]
    return [row for row in rows if row["kind"] != "starting"]


def short(row: dict[str, Any]) -> tuple[str, str, int, Any]:
    return row["kind"], row["role"], row["epoch"], json.loads(row["detail"] or "{}")


def test_a_master_is_one_when_its_log_has_the_epoch(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        broker=[
            "2026-11-25T20:12:50.886Z INFO RocketmqBroker [AdminBrokerThread_13] Begin to change to"
            " master, brokerName:broker-a, replicas:10.1.1.11:10911, new Epoch:2",
            "2026-11-25T20:12:50.887Z INFO RocketmqBroker [AdminBrokerThread_13] SyncStateSet"
            " changed from [] to [2]",
            "2026-11-25T20:12:51.003Z INFO RocketmqStore [AdminBrokerThread_13] Change ha to master"
            " success, newMasterEpoch:2, startOffset:15960",
        ],
    )
    assert [short(row) for row in rows] == [
        ("role", "none", 0, {}),
        ("set_changed", "master", 2, {"set": [2]}),
        ("role", "master", 2, {"end": 15960}),
        ("epoch", "master", 2, {"start": 15960}),
    ]
    at_ns = rows[2]["run_ns"] - rows[0]["run_ns"]
    assert at_ns == 41_003_000_000  # times are UTC, to the millisecond
    assert {row["incarnation"] for row in rows} == {1}


def test_a_slave_tells_whom_it_follows_and_what_it_cut(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        broker=[
            "2026-11-25T20:12:55.633Z INFO RocketmqBroker [main] Begin to change to slave,"
            " brokerName=broker-a, brokerId=1, newMasterBrokerId=2,"
            " newMasterAddress=10.1.1.13:10911, newMasterEpoch=2",
            "2026-11-25T20:12:56.997Z INFO RocketmqStore [AutoSwitchHAClient] local epoch entries"
            " is [EpochEntry{epoch=1, startOffset=0, endOffset=18000}]",
            "2026-11-25T20:12:57.001Z INFO RocketmqStore [AutoSwitchHAClient] truncateOffset is"
            " 15960",
            "2026-11-25T20:12:57.016Z INFO RocketmqStore [AutoSwitchHAClient] Truncate slave log to"
            " 15960 success, change to transfer state",
        ],
    )
    assert [short(row) for row in rows[1:]] == [
        ("role", "slave", 2, {"master": "n3"}),
        ("truncated", "", 0, {"from": 18000, "to": 15960}),
    ]


def test_a_log_that_ends_where_it_should_is_not_cut(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        broker=[
            "2026-11-25T20:12:57.001Z INFO RocketmqStore [AutoSwitchHAClient] truncateOffset is"
            " 15960",
            "2026-11-25T20:12:57.002Z INFO RocketmqStore [AutoSwitchHAClient] no need to truncate"
            " files, truncate offset is 15960, max physical offset is 15960",
            "2026-11-25T20:12:57.016Z INFO RocketmqStore [AutoSwitchHAClient] Truncate slave log to"
            " 15960 success, change to transfer state",
        ],
    )
    assert [row["kind"] for row in rows] == ["role"]


def test_the_leader_of_the_controllers_tells_elections_and_sets(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        nameserver=[
            "2026-11-25T20:12:17.284Z INFO DLedgerLeaderElector [StateMaintainer] [n0]"
            " [VOTE_RESULT] has been elected to be the leader in term 1",
            "2026-11-25T20:12:17.306Z INFO RocketmqController [RoleChangeHandler_1]"
            " Controller n0 change role to leader, try process a initial proposal",
            f"2026-11-25T20:12:17.908Z INFO RocketmqController {SCHEDULER} Event queue run event"
            " applyBrokerId, get the result ControllerResult{events=[ApplyBrokerIdEvent{"
            "clusterName='DefaultCluster', brokerName='broker-a', brokerAddress='10.1.1.12:10911',"
            " registerCheckCode='10.1.1.12:10911;1795637537896', newBrokerId=1}],"
            " response=ApplyBrokerIdResponseHeader{clusterName='DefaultCluster'}}",
            f"2026-11-25T20:12:18.044Z INFO RocketmqController {SCHEDULER} Event queue run event"
            " electMaster, get the result ControllerResult{events=[ElectMasterEvent{"
            "newMasterElected=true, brokerName='broker-a', newMasterBrokerId=1}],"
            " response=ElectMasterResponseHeader{masterBrokerId=1,"
            " masterAddress='10.1.1.12:10911', masterEpoch=1, syncStateSetEpoch=1}}",
            f"2026-11-25T20:12:30.875Z INFO RocketmqController {SCHEDULER} Event queue run event"
            " alterSyncStateSet, get the result ControllerResult{events=[AlterSyncStateSetEvent{"
            "brokerName='broker-a', newSyncStateSet=[1, 2]}],"
            " response=AlterSyncStateSetResponseHeader{newSyncStateSetEpoch=2}}",
        ],
    )
    assert [short(row) for row in rows] == [
        ("role", "leader", 1, {}),
        ("elected", "", 1, {"master": "n2", "master_id": 1, "set_epoch": 1}),
        (
            "set_changed", "", 2,
            {"set_ids": [1, 2], "set_epoch": 2, "set": ["n2", "2"], "master": "n2"},
        ),
    ]  # fmt: skip
    assert rows[0]["group"] == "controller" and rows[1]["group"] == "broker-a"


def test_who_is_given_up_is_no_election(tmp_path: Path) -> None:
    """Its epoch is in no line."""
    rows = told(
        tmp_path,
        nameserver=[
            f"2026-11-25T20:13:10.656Z INFO RocketmqController {SCHEDULER} Event queue run event"
            " electMaster, get the result ControllerResult{events=[ElectMasterEvent{"
            "newMasterElected=false, brokerName='broker-a', newMasterBrokerId=null}],"
            " response=null}",
        ],
    )
    assert [row["kind"] for row in rows] == ["gave_up"]


def test_a_member_of_dledger_is_master_when_its_role_is_changed(tmp_path: Path) -> None:
    """And no more when it begins to be something else."""
    rows = told(
        tmp_path,
        broker=[
            "2026-11-25T20:15:49.506Z INFO RocketmqBroker [main] brokerRole=ASYNC_MASTER",
            "2026-11-25T20:15:49.507Z INFO RocketmqBroker [main] enableDLegerCommitLog=true",
            "2026-11-25T20:15:53.023Z INFO RocketmqBroker [main] The broker[broker-a,"
            " 10.1.1.11:10911] boot success. serializeType=JSON and name server is 10.1.1.11:9876",
            "2026-11-25T20:16:08.355Z INFO RocketmqBroker [DLegerRoleChangeHandler_1] Begin"
            " handling broker role change term=2 role=LEADER currStoreRole=SLAVE",
            "2026-11-25T20:16:08.973Z INFO RocketmqBroker [DLegerRoleChangeHandler_1] Finish"
            " handling broker role change succ=true term=2 role=LEADER currStoreRole=SYNC_MASTER"
            " cost=618",
            "2026-11-25T20:16:27.725Z INFO DLedgerLeaderElector [NettyServerPublicExecutor_2]"
            " [n0][ChangeRoleToFollower] from term: 3 leaderId: n2 and currTerm: 3",
            "2026-11-25T20:16:27.726Z INFO RocketmqBroker [DLegerRoleChangeHandler_1] Begin"
            " handling broker role change term=3 role=FOLLOWER currStoreRole=SYNC_MASTER",
            "2026-11-25T20:16:27.739Z INFO RocketmqBroker [DLegerRoleChangeHandler_1] Finish"
            " handling broker role change succ=true term=3 role=FOLLOWER currStoreRole=SLAVE"
            " cost=14",
        ],
    )
    own = [row for row in rows if row["group"] == "broker-a"]
    assert [short(row) for row in own] == [
        ("role", "none", 0, {}),
        ("role", "master", 2, {}),
        ("role", "slave", 3, {"master": "n3"}),
    ]
    assert own[1]["run_ns"] % 1_000_000_000 == 973_000_000
    assert own[2]["run_ns"] % 1_000_000_000 == 726_000_000


@pytest.mark.parametrize(("word", "role"), [("SYNC_MASTER", "master"), ("SLAVE", "slave")])
def test_a_role_by_configuration_begins_with_the_boot(tmp_path: Path, word: str, role: str) -> None:
    rows = told(
        tmp_path,
        broker=[
            f"2026-11-25T20:15:49.506Z INFO RocketmqBroker [main] brokerRole={word}",
            "2026-11-25T20:15:49.507Z INFO RocketmqBroker [main] enableDLegerCommitLog=false",
            "\tat io.netty.channel.nio.NioEventLoop.run(NioEventLoop.java:596)",
            "2026-11-25T20:15:53.023Z INFO RocketmqBroker [main] The broker[broker-a,"
            " 10.1.1.11:10911] boot success. serializeType=JSON and name server is 10.1.1.11:9876",
        ],
    )
    own = [row for row in rows if row["group"] == "broker-a"]
    assert [row["role"] for row in own] == ["none", role]
    assert own[1]["run_ns"] % 1_000_000_000 == 23_000_000


def test_each_start_is_another_life(tmp_path: Path) -> None:
    """What a process knew ends with it."""
    rows = told(
        tmp_path,
        broker=[
            "2026-11-25T20:12:51.003Z INFO RocketmqStore [main] Change ha to master success,"
            " newMasterEpoch:2, startOffset:15960",
            START.replace("20:12:10", "20:13:10"),
        ],
    )
    assert [(row["incarnation"], row["role"]) for row in rows if row["kind"] == "role"] == [
        (1, "none"),
        (1, "master"),
        (2, "none"),
    ]


# -- releases before 5.1.1, which call members by their addresses ----------------------------------


def test_an_old_releases_slave_tells_whom_it_follows_once(tmp_path: Path) -> None:
    line = (
        "INFO RocketmqStore [main] Change ha to slave success,"
        " newMasterAddress:10.1.1.11:10911, newMasterEpoch:1"
    )
    rows = told(
        tmp_path,
        broker=[
            "2026-11-26T06:48:10.479Z INFO RocketmqBroker [main] Begin to change to slave,"
            " brokerName=broker-a, replicas=10.1.1.12:10911, brokerId=3",
            f"2026-11-26T06:48:10.492Z {line}",
            f"2026-11-26T06:48:10.493Z {line}",
        ],
    )
    assert [short(row) for row in rows[1:]] == [("role", "slave", 1, {"master": "n1"})]


def test_an_old_releases_set_has_nodes_for_numbers(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        broker=[
            "2026-11-26T06:48:15.475Z INFO RocketmqBroker [AutoSwitchHAService_Executor_1]"
            " SyncStateSet changed from [10.1.1.11:10911] to [10.1.1.11:10911, 10.1.1.13:10911]",
        ],
    )
    assert [short(row) for row in rows[1:]] == [
        ("set_changed", "master", 0, {"set": ["n1", "n3"]}),
    ]


def test_an_old_releases_controller_tells_elections_and_sets(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        nameserver=[
            f"2026-11-26T06:47:57.264Z INFO RocketmqController {SCHEDULER} Event queue run event"
            " registerBroker, get the result ControllerResult{events=[ElectMasterEvent{"
            "isNewMasterElected=true, brokerName='broker-a', newMasterAddress='10.1.1.11:10911',"
            " clusterName='DefaultCluster'}], response=RegisterBrokerResponseHeader{"
            "masterAddress='10.1.1.11:10911', masterEpoch=1, syncStateSetEpoch=1, brokerId=0}}",
            f"2026-11-26T06:48:15.474Z INFO RocketmqController {SCHEDULER} Event queue run event"
            " alterSyncStateSet, get the result ControllerResult{events=[AlterSyncStateSetEvent{"
            "brokerName='broker-a', newSyncStateSet=[10.1.1.11:10911, 10.1.1.13:10911]}],"
            " response=AlterSyncStateSetResponseHeader{newSyncStateSetEpoch=2}}",
        ],
    )
    elected, changed = (short(row) for row in rows if row["kind"] in ("elected", "set_changed"))
    assert elected[2] == 1 and elected[3]["master"] == "n1"
    assert changed[2] == 2
    assert (changed[3]["set"], changed[3]["master"]) == (["n1", "n3"], "n1")


JRAFT = "INFO RocketmqController [JRaft-FSMCaller-Disruptor-0]"
DECIDED = (
    f"2026-11-27T20:52:28.765Z {JRAFT} process event: term 1, index 6, request code 1002 success"
    " with result ControllerResult{events=[ElectMasterEvent{newMasterElected=true,"
    " brokerName='broker-a', newMasterBrokerId=1}], response=ElectMasterResponseHeader{"
    "masterBrokerId=1, masterAddress='10.1.1.12:10911', masterEpoch=1, syncStateSetEpoch=1}}",
    f"2026-11-27T20:52:37.787Z {JRAFT} process event: term 1, index 43, request code 1001 success"
    " with result ControllerResult{events=[AlterSyncStateSetEvent{brokerName='broker-a',"
    " newSyncStateSet=[1, 2]}], response=AlterSyncStateSetResponseHeader{newSyncStateSetEpoch=2}}",
    f"2026-11-27T20:52:37.788Z {JRAFT} process event: term 1, index 44, request code 1001 success"
    " with result ControllerResult{events=[],"
    " response=AlterSyncStateSetResponseHeader{newSyncStateSetEpoch=0}}",
)
NAMED = (
    f"2026-11-27T20:52:28.723Z {JRAFT} process event: term 1, index 4, request code 1013 success"
    " with result ControllerResult{events=[ApplyBrokerIdEvent{clusterName='DefaultCluster',"
    " brokerName='broker-a', brokerAddress='10.1.1.12:10911', registerCheckCode='x',"
    " newBrokerId=1}], response=ApplyBrokerIdResponseHeader{}}",
)


def test_with_jraft_a_leader_tells_what_was_decided(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        nameserver=[
            f"2026-11-27T20:52:28.315Z {JRAFT} node <controllers/10.1.1.11:9880> Start Leader,"
            " term=1",
            *NAMED,
            *DECIDED,
            f"2026-11-27T20:52:40.944Z {JRAFT} node <controllers/10.1.1.11:9880> Stop Leader,"
            " status=Status[ERAFTTIMEDOUT<10001>: Majority of the group dies: 2/3]",
            f"2026-11-27T20:52:41.465Z {JRAFT} Start following, ctx=LeaderChangeContext"
            " [leaderId=10.1.1.12:9880, term=2, status=Status[ENEWLEADER<10011>: ]]",
        ],
    )
    assert [(row["kind"], row["role"], row["epoch"], row["group"]) for row in rows] == [
        ("role", "leader", 1, "controller"),
        ("elected", "", 1, "broker-a"),
        ("set_changed", "", 2, "broker-a"),
        ("role", "none", 1, "controller"),
        ("role", "follower", 2, "controller"),
    ]
    details = [json.loads(row["detail"] or "{}") for row in rows]
    assert details[1] == {"master": "n2", "master_id": 1, "set_epoch": 1}
    assert details[2] == {
        "set_ids": [1, 2], "set": ["n2", "2"], "set_epoch": 2, "master": "n2",
    }  # fmt: skip
    assert details[4] == {"leader": "n2"}


def test_with_jraft_a_follower_that_reads_its_log_again_decides_nothing(tmp_path: Path) -> None:
    rows = told(
        tmp_path,
        nameserver=[
            *NAMED,
            *DECIDED,
            f"2026-11-27T20:52:41.465Z {JRAFT} Start following, ctx=LeaderChangeContext"
            " [leaderId=10.1.1.13:9880, term=2, status=Status[ENEWLEADER<10011>: ]]",
            *DECIDED,
        ],
    )
    assert [(row["kind"], row["role"], row["epoch"]) for row in rows] == [("role", "follower", 2)]
