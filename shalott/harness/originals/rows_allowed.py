"""Rows of losses that the settings of Controller mode allow: no bug, and what production runs."""

from __future__ import annotations

from shalott.harness.originals.row import Ours, Row, Setup, Shows, between, fault, releases
from shalott.harness.originals.rows_controller import ALL, BROKER, SAFE, SOON

ALLOWED_ROWS: tuple[Row, ...] = (
    Row(
        id="W-CT-1",
        title="A master that acknowledges alone dies, and a member of the SyncStateSet that was a "
        "moment behind is elected",
        has=releases("5.0.0"),
        read_in="store/config/MessageStoreConfig.java: allAckInSyncStateSet=false, inSyncReplicas=1"
        " in every release",
        setup=Setup(replication="controller", time_limit_ms=30_000, rate_hz=80, clients_a_node=4),
        faults=(
            fault(1, "delay", "", 5000, 8000, nodes=(), links=between("n1", "n2+n3"), amount=400),
            fault(2, "kill", "n1", 10_000, 8000),
        ),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        control_policy=SAFE,
        why="The links of the master's node take 400 ms. Its slaves are that much behind, and stay "
        "in the set. It is killed, and one of them is elected.",
        ours=Ours(system="controller", closed=SAFE),
    ),
    Row(
        id="W-CT-2",
        title="A slave that is no member of the SyncStateSet is elected (an unclean election)",
        has=releases("5.0.0"),
        read_in="controller/impl/manager/ReplicasInfoManager.java, electMaster: with "
        "enableElectUncleanMaster every replica is a candidate; it is false by default",
        setup=Setup(
            replication="controller",
            services={"n1": BROKER, "n2": BROKER, "n3": ALL[1:]},
            time_limit_ms=40_000,
            policy={**SOON, "enableElectUncleanMaster": True},
        ),
        faults=(
            fault(1, "partition-halves", "", 5000, 20_000, nodes=(), links=between("n1", "n2")),
            fault(2, "kill", "n1", 15_000, 14_000),
        ),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        control_policy={"enableElectUncleanMaster": False},
        why="The slave is cut off from its master and leaves the set; the master goes on alone, "
        "and is killed. The controller elects the slave.",
        ours=Ours(system="controller", closed={"enableElectUncleanMaster": False}),
    ),
)
