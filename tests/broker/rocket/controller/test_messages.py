"""Headers and bodies of the controllers' requests, against literal frames."""

from __future__ import annotations

import pytest

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.remoting.codec import FrameReader, encode
from shalott.broker.rocket.remoting.command import BINARY, Command, RequestCode

pytestmark = pytest.mark.unit

HEADERS: list[tuple[cm.Header, dict[str, str]]] = [
    (
        cm.AlterSyncStateSet(broker_name="g", master_broker_id=2, master_epoch=7, invoke_time=5),
        {"brokerName": "g", "masterBrokerId": "2", "masterEpoch": "7", "invokeTime": "5"},
    ),
    (
        cm.ElectMaster(cluster_name="c", broker_name="g", broker_id=3, designate_elect=True),
        {
            "clusterName": "c",
            "brokerName": "g",
            "brokerId": "3",
            "designateElect": "true",
            "invokeTime": "0",
        },
    ),
    (
        cm.RegisterBroker(
            cluster_name="c", broker_name="g", broker_id=1, broker_address="h:1", invoke_time=9
        ),
        {
            "clusterName": "c",
            "brokerName": "g",
            "brokerId": "1",
            "brokerAddress": "h:1",
            "invokeTime": "9",
        },
    ),
    (cm.GetReplicaInfo(broker_name="g"), {"brokerName": "g"}),
    (
        cm.CleanBrokerData(cluster_name="c", broker_name="g", broker_controller_ids_to_clean="1;2"),
        {
            "clusterName": "c",
            "brokerName": "g",
            "brokerControllerIdsToClean": "1;2",
            "isCleanLivingBroker": "false",
            "invokeTime": "0",
        },
    ),
    (
        cm.GetNextBrokerId(cluster_name="c", broker_name="g"),
        {"clusterName": "c", "brokerName": "g"},
    ),
    (
        cm.ApplyBrokerId(
            cluster_name="c",
            broker_name="g",
            applied_broker_id=4,
            register_check_code="h:1;1700000000000",
        ),
        {
            "clusterName": "c",
            "brokerName": "g",
            "appliedBrokerId": "4",
            "registerCheckCode": "h:1;1700000000000",
        },
    ),
    (
        cm.Heartbeat(
            cluster_name="c",
            broker_addr="h:1",
            broker_name="g",
            broker_id=1,
            epoch=2,
            max_offset=1 << 40,
            confirm_offset=3,
            heartbeat_timeout_mills=10_000,
            election_priority=5,
        ),
        {
            "clusterName": "c",
            "brokerAddr": "h:1",
            "brokerName": "g",
            "brokerId": "1",
            "epoch": "2",
            "maxOffset": "1099511627776",
            "confirmOffset": "3",
            "heartbeatTimeoutMills": "10000",
            "electionPriority": "5",
        },
    ),
    (cm.AlteredSyncStateSet(new_sync_state_set_epoch=8), {"newSyncStateSetEpoch": "8"}),
    (
        cm.MasterInfo(
            master_broker_id=1, master_address="h:1", master_epoch=2, sync_state_set_epoch=3
        ),
        {
            "masterBrokerId": "1",
            "masterAddress": "h:1",
            "masterEpoch": "2",
            "syncStateSetEpoch": "3",
        },
    ),
    (cm.MasterInfo(), {}),
    (cm.ReplicaInfo(master_epoch=4), {"masterEpoch": "4"}),
    (
        cm.NextBrokerId(cluster_name="c", broker_name="g", next_broker_id=2),
        {"clusterName": "c", "brokerName": "g", "nextBrokerId": "2"},
    ),
    (
        cm.AppliedBrokerId(cluster_name="c", broker_name="g"),
        {"clusterName": "c", "brokerName": "g"},
    ),
    (
        cm.ControllerMetadata(
            group="r",
            controller_leader_id="n1",
            controller_leader_address="h:9",
            is_leader=True,
            peers="n1:h:9;",
            controller_epoch=6,
        ),
        {
            "group": "r",
            "controllerLeaderId": "n1",
            "controllerLeaderAddress": "h:9",
            "isLeader": "true",
            "peers": "n1:h:9;",
            "controllerEpoch": "6",
        },
    ),
]


@pytest.mark.parametrize(("header", "ext"), HEADERS, ids=lambda value: type(value).__name__)
def test_a_header_is_these_fields_both_ways(header: cm.Header, ext: dict[str, str]) -> None:
    assert cm.to_ext(header) == ext
    assert cm.from_ext(ext, type(header)) == header


BODIES = [
    (
        cm.SyncStateSet(sync_state_set=(1, 3), sync_state_set_epoch=4),
        b'{"syncStateSet":[1,3],"syncStateSetEpoch":4}',
    ),
    (
        cm.ElectMasterBody(
            broker_member_group=cm.BrokerMemberGroup(
                cluster="c", broker_name="g", broker_addrs={1: "h:1", 2: "h:2"}
            ),
            sync_state_set=(2,),
        ),
        b'{"brokerMemberGroup":{"cluster":"c","brokerName":"g",'
        b'"brokerAddrs":{"1":"h:1","2":"h:2"}},"syncStateSet":[2]}',
    ),
    (
        cm.BrokerReplicasInfo(
            replicas_info_table={
                "g": cm.ReplicasInfo(
                    master_broker_id=1,
                    master_address="h:1",
                    master_epoch=2,
                    sync_state_set_epoch=3,
                    in_sync_replicas=(
                        cm.ReplicaIdentity(
                            broker_name="g", broker_id=1, broker_address="h:1", alive=True
                        ),
                    ),
                )
            }
        ),
        b'{"replicasInfoTable":{"g":{"masterBrokerId":1,"masterAddress":"h:1","masterEpoch":2,'
        b'"syncStateSetEpoch":3,"inSyncReplicas":[{"brokerName":"g","brokerId":1,'
        b'"brokerAddress":"h:1","alive":true}],"notInSyncReplicas":[]}}}',
    ),
]


@pytest.mark.parametrize(("body", "data"), BODIES, ids=lambda value: type(value).__name__)
def test_a_body_is_this_json_both_ways(body: object, data: bytes) -> None:
    assert cm.to_body(body) == data  # type: ignore[arg-type]
    assert cm.from_body(data, type(body)) == body  # type: ignore[type-var]


def test_truth_values_and_numbers_are_taken_as_every_client_writes_them() -> None:
    ext = {"brokerName": "g", "brokerId": "-1", "designateElect": "1"}
    assert cm.from_ext(ext, cm.ElectMaster) == cm.ElectMaster(broker_name="g", designate_elect=True)
    assert cm.from_ext({**ext, "designateElect": "0", "more": "x"}, cm.ElectMaster) == (
        cm.ElectMaster(broker_name="g")
    )


@pytest.mark.parametrize("ext", [{}, {"brokerName": "g", "brokerId": "one"}])
def test_a_header_that_is_none_is_refused(ext: dict[str, str]) -> None:
    with pytest.raises(BrokerError, match="ElectMaster: "):
        cm.from_ext(ext, cm.ElectMaster)


def test_a_body_that_is_none_is_refused() -> None:
    with pytest.raises(BrokerError, match="SyncStateSet: "):
        cm.from_body(b'{"syncStateSet":["x"]}', cm.SyncStateSet)


JSON_HEADER = (
    b'{"code":1001,"language":"OTHER","version":459,"opaque":9,"flag":0,"extFields":'
    b'{"brokerName":"g","masterBrokerId":"2","masterEpoch":"7","invokeTime":"0"},'
    b'"serializeTypeCurrentRPC":"JSON"}'
)
BODY = b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}'


def test_an_alter_sync_state_set_frame_in_json() -> None:
    header_length = len(JSON_HEADER).to_bytes(4, "big")
    rest = header_length + JSON_HEADER + BODY
    [command] = FrameReader().feed(len(rest).to_bytes(4, "big") + rest)
    assert command.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    assert cm.from_ext(command.ext, cm.AlterSyncStateSet) == cm.AlterSyncStateSet(
        broker_name="g", master_broker_id=2, master_epoch=7
    )
    assert cm.from_body(command.body, cm.SyncStateSet).sync_state_set == (1, 2)


def test_a_heartbeat_frame_in_the_binary_encoding() -> None:
    ext = {
        b"clusterName": b"c",
        b"brokerAddr": b"h:1",
        b"brokerName": b"g",
        b"brokerId": b"1",
        b"epoch": b"2",
        b"maxOffset": b"30",
        b"confirmOffset": b"20",
        b"heartbeatTimeoutMills": b"10000",
        b"electionPriority": b"2147483647",
    }
    fields = b"".join(
        len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value
        for key, value in ext.items()
    )
    header = (
        bytes.fromhex("0388 07 01cb 00000005 00000000 00000000")  # code 904 ... no remark
        + len(fields).to_bytes(4, "big")
        + fields
    )
    frame = (4 + len(header)).to_bytes(4, "big") + b"\x01" + len(header).to_bytes(3, "big") + header
    heartbeat = cm.Heartbeat(
        cluster_name="c",
        broker_addr="h:1",
        broker_name="g",
        broker_id=1,
        epoch=2,
        max_offset=30,
        confirm_offset=20,
    )
    sent = Command(
        code=RequestCode.BROKER_HEARTBEAT, ext=cm.to_ext(heartbeat), opaque=5, serialize=BINARY
    )
    assert encode(sent) == frame
    [command] = FrameReader().feed(frame)
    assert cm.from_ext(command.ext, cm.Heartbeat) == heartbeat
