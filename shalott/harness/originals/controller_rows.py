"""Rows of Controller mode: RocketMQ 5's elected masters.

Where the controllers and name servers run is part of a plan: the node of a lone controller keeps
its own broker in office when it is cut off with it, and deposes every other one. Controllers that
have jRaft for their Raft keep who is alive in its log, and miss brokers by rules of their own.
"""

from __future__ import annotations

from shalott.harness.originals.row import Lines, Ours, Row, Setup, Shows, between, fault, releases

SAFE = {"allAckInSyncStateSet": True, "inSyncReplicas": 2, "minInSyncReplicas": 2}
BROKER = ("broker", "nameserver")
ALL = (*BROKER, "controller")
CONTROLLER_AT_N1 = {"n1": ALL, "n2": BROKER, "n3": BROKER}
CONTROLLER_AT_N3 = {"n1": BROKER, "n2": BROKER, "n3": ALL}
# A broker that is gone is missed, and leaves the set, sooner than by default (10 and 15 s).
SOON = {
    "controllerHeartBeatTimeoutMills": 4000,
    "scanNotActiveBrokerInterval": 1000,
    "haSendHeartbeatInterval": 1000,
    "haHousekeepingInterval": 4000,
}
# A topic that every broker has known for long can't be forgotten.
EVERYWHERE = {"topic-made-at": "all"}

# The master's node, with the only controller, is cut off, and restarts meanwhile: no other
# node was elected, so it is the master of the same epoch again.
_RESTART_IN_EPOCH = (
    fault(1, "partition-halves", "", 6000, 18_000, nodes=(), links=between("n1", "n2+n3")),
    fault(2, "kill", "n1", 9000, 500),
)

# The only controller goes down with the master, and is back with it: no node asks for an election.
_NO_ELECTION = (fault(1, "kill", "n1", 10_000, 500),)

JRAFT = {"controllerType": "jRaft"}
OURS = {"controllerType": None}  # our controllers have one Raft only

CONTROLLER_ROWS: tuple[Row, ...] = (
    Row(
        id="KB-RKT-17",
        title="A master that is cut off with its controller and its clients goes on acknowledging "
        "alone",
        links=("https://github.com/apache/rocketmq/issues/7017",),
        has=releases("5.0.0"),
        read_in="store/config/MessageStoreConfig.java: allAckInSyncStateSet=false, inSyncReplicas=1"
        " in every release; the issue's answer is to set them",
        setup=Setup(replication="controller", time_limit_ms=40_000),
        faults=(fault(1, "partition-isolate-master", "master", 6000, 24_000),),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        control_policy=SAFE,
        why="The master's node, with its controller, name server and clients, is cut off for 24 s. "
        "The other two elect after 10 to 15 s; what the old one acknowledged meanwhile it cuts "
        "away when it is back.",
        ours=Ours(system="controller", closed=SAFE),
    ),
    Row(
        id="M-CT-ALONE",
        title="A master that its slaves' connections have left takes them out of the set, and "
        "acknowledges alone",
        links=("https://github.com/apache/rocketmq/pull/9897",),
        has=releases("5.4.0"),
        free=releases("5.0.0", "5.3.3"),
        read_in="store/ha/autoswitch/AutoSwitchHAService.java, removeConnection: since 5.4.0 the "
        "smaller set is the master's own before the controllers have agreed",
        setup=Setup(
            replication="controller",
            time_limit_ms=45_000,
            topic_made_at="all",
            policy={"allAckInSyncStateSet": True},
        ),
        faults=(fault(1, "partition-isolate-master", "master", 6000, 30_000),),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.5.0",
        control_on="5.3.3",
        ours=Ours(system="controller", bug="KB-RKT-F"),
        why="Every member of the SyncStateSet must have a message before it is acknowledged. The "
        "master's node is cut off with its clients; 20 s later its slaves' connections expire, and "
        "it acknowledges what no slave has, while another master has been elected.",
    ),
    Row(
        id="KB-RKT-F",
        title="A master that is deposed acknowledges what waits for its slaves, and cuts it away",
        links=("https://github.com/apache/rocketmq/pull/9897",),
        has=releases("5.4.0"),
        free=releases("5.0.0", "5.3.3"),
        read_in="store/ha/autoswitch/AutoSwitchHAService.java, changeToSlave ends its slaves' "
        "connections, and since 5.4.0 removeConnection takes each one's slave out of its own set",
        setup=Setup(
            replication="controller",
            profile="safe",
            clients_a_node=6,
            time_limit_ms=36_000,
            topic_made_at="all",
        ),
        faults=(fault(1, "partition-isolate-master", "master", 6000, 17_000),),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.5.0",
        control_on="5.3.3",
        ours=Ours(system="controller", bug="KB-RKT-F"),
        why="The master's node is cut off with its clients, too short for its slaves' connections "
        "to expire. When it is back the controllers make it a slave: what its clients wait for is "
        "answered with SEND_OK, and then it cuts its log where the new master's begins.",
    ),
    Row(
        id="KB-RKT-12",
        has=releases("5.0.0", "5.1.0"),
        free=releases("5.1.1"),
        read_in="store/ha/autoswitch/AutoSwitchHAService.java, computeConfirmOffset; mended in "
        "5.1.1 (7903c70412, #6663)",
        setup=Setup(
            replication="controller",
            services=CONTROLLER_AT_N3,
            time_limit_ms=40_000,
            policy={**SOON, "allAckInSyncStateSet": True},
        ),
        faults=(
            fault(1, "partition-halves", "", 6000, 22_000, nodes=(), links=between("n1+n2", "n3")),
        ),
        shows=Shows(anomalies=("vanished",)),
        run_on="5.1.0",
        control_on="5.1.1",
        why="Master and one slave are cut off from the third member of the SyncStateSet, which has "
        "the controller and is elected. Nothing may be acknowledged on the losing side, and "
        "nothing new be read: what a reader sees there is taken back.",
        ours=Ours(system="controller", bug="KB-RKT-12"),
    ),
    Row(
        id="KB-RKT-A",
        has=releases("5.0.0"),
        read_in="store/ha/autoswitch/EpochFileCache.java, appendEntry: an epoch whose start is not "
        "beyond the last one's is refused, in every release",
        setup=Setup(
            replication="controller",
            quiet_ms=0,
            time_limit_ms=40_000,
            must_converge=True,
            must_settle=True,
        ),
        faults=(fault(1, "partition-isolate-master", "master", 0, 25_000),),
        shows=Shows(anomalies=("diverged",)),
        run_on="5.3.3",
        why="The first master is cut off before anybody has written, writes alone, and another is "
        "elected for an epoch that begins where the first one did, at 0. Both call what they "
        "write by the same epoch, so nothing is cut away afterwards.",
        ours=Ours(system="controller", bug="KB-RKT-A"),
    ),
    Row(
        id="KB-RKT-36",
        has=releases("5.0.0"),
        read_in="broker/slave/SlaveSynchronize.java: topics are copied on a timer alone, of 10 s",
        setup=Setup(
            replication="controller",
            topic_made_at="master",
            time_limit_ms=25_000,
            quiet_ms=0,
            rate_hz=80,
            max_rto_ms=20_000,
            policy={"autoCreateTopicEnable": False},
        ),
        faults=(fault(1, "kill", "master", 1000, 15_000),),
        shows=Shows(
            lines=Lines(pattern=r"the topic log not exist|topic\[log\] not exist", least=20)
        ),
        run_on="5.3.3",
        control_told=EVERYWHERE,
        why="A topic is made at the master, used, and the master killed before its slaves have "
        "copied their tables: the new master knows no such topic, nor does anybody after the "
        "old one has copied the tables of the new one.",
    ),
    Row(
        id="KB-RKT-20",
        has=releases("5.0.0", "5.1.0"),
        free=releases("5.1.1"),
        read_in="store/DefaultMessageStore.java, recoverTopicQueueTable by a master that is elected"
        " again; mended in 5.1.1 (4e0a723d22, #6345)",
        setup=Setup(
            replication="controller",
            nodes=("n1", "n2", "n3"),
            time_limit_ms=66_000,
            rate_hz=240,
            clients_a_node=6,
            services={"n1": BROKER, "n2": BROKER, "n3": ALL[1:]},
            policy={**SOON, "haMaxTimeSlaveNotCatchup": 3000},
        ),
        faults=(
            fault(1, "kill", "n2", 4000, 60_000),
            *(
                fault(
                    2 + i,
                    "partition-halves",
                    "",
                    12_000 + 10_000 * i,
                    6000,
                    nodes=(),
                    links=between("n1", "n3"),
                )
                for i in range(5)
            ),
        ),  # fmt: skip
        shows=Shows(anomalies=("inconsistent-offsets", "lost-write")),
        run_on="5.1.0",
        control_on="5.1.1",
        why="The only member of the set is missed by the controller and elected again, while its "
        "clients go on sending: it numbers messages anew from queues that are behind.",
        ours=Ours(system="controller", bug="KB-RKT-20"),
    ),
    Row(
        id="KB-RKT-15",
        has=releases("5.0.0", "5.1.4"),
        free=releases("5.2.0"),
        read_in="store/DefaultMessageStore.java, recoverTopicQueueTable; mended in 5.2.0 "
        "(2c898c9b31, #7690)",
        setup=Setup(
            replication="controller",
            services=CONTROLLER_AT_N1,
            time_limit_ms=40_000,
            rate_hz=80,
            clients_a_node=4,
            op_timeout_ms=2000,
            policy={**SOON, "allAckInSyncStateSet": True, "haHousekeepingInterval": 20_000},
        ),
        faults=(
            fault(1, "partition-halves", "", 8000, 8000, nodes=(), links=between("n1", "n2+n3")),
            fault(2, "kill", "n1", 13_000, 500),
        ),
        shows=Shows(anomalies=("inconsistent-offsets", "lost-write")),
        run_on="5.1.4",
        control_on="5.2.0",
        why="The master, with the controller, is cut off from its slaves, so what it takes is not "
        "confirmed; it is killed, comes back, is elected, and numbers new messages from where "
        "its queues were confirmed.",
        ours=Ours(system="controller", bug="KB-RKT-15"),
    ),
    Row(
        id="KB-RKT-18",
        has=releases("5.0.0", "5.1.0"),
        free=releases("5.1.1"),
        read_in="broker/controller/ReplicasManager.java, changeToMaster: what is told to name "
        "servers does not carry the epoch; mended in 5.1.1 (20dc5c96ea, #6317)",
        setup=Setup(
            replication="controller",
            services={"n1": BROKER, "n2": BROKER, "n3": ALL[1:]},
            time_limit_ms=60_000,
            policy={**SOON, "registerNameServerPeriod": 10_000},
        ),
        faults=(
            fault(1, "partition-halves", "", 5000, 48_000, nodes=(), links=between("n1", "n3")),
        ),
        shows=Shows(route_changes=3),
        run_on="5.1.0",
        control_on="5.1.1",
        why="The master is cut off from the controller and one name server, and not from the other "
        "two: it and its successor register there in turn, every 10 s.",
    ),
    Row(
        id="KB-RKT-26",
        has=releases("5.0.0", "5.0.0"),
        free=releases("5.1.0"),
        read_in="controller/impl/DefaultBrokerHeartbeatManager.java: a new leader scans only whom "
        "it has heard; mended in 5.1.0 (646d04f425, #5711)",
        setup=Setup(
            replication="controller",
            nodes=("n1", "n2", "n3", "n4", "n5"),
            services={
                "n1": ("broker",),
                "n2": ("broker",),
                **dict.fromkeys(("n3", "n4", "n5"), ALL[1:]),
            },
            time_limit_ms=65_000,
            rate_hz=20,
            max_rto_ms=35_000,
        ),
        faults=(fault(1, "kill", "controller", 6000, 50_000), fault(2, "kill", "n1", 6000, 50_000)),
        shows=Shows(anomalies=("unavailable",)),
        run_on="5.0.0",
        control_on="5.1.0",
        why="The leader of the controllers and the master die together. The next leader has never "
        "heard of the master, and so never misses it.",
        ours=Ours(system="controller", bug="KB-RKT-26"),
    ),
    Row(
        id="KB-RKT-32",
        title="With a transient store pool brokers do not work in Controller mode",
        links=("https://github.com/apache/rocketmq/issues/5714",),
        has=releases("5.0.0", "5.0.0"),
        free=releases("5.1.0"),
        read_in="store/DefaultMessageStore.java and TransientStorePool.java: a slave has no pool; "
        "mended in 5.1.0 (e1dfc0db53, #5722)",
        setup=Setup(
            replication="controller",
            time_limit_ms=40_000,
            rate_hz=30,
            must_settle=True,
            policy={
                "transientStorePoolEnable": True,
                "transientStorePoolSize": 2,
                "mappedFileSizeCommitLog": 8 << 20,
            },
        ),
        faults=(fault(1, "kill", "master", 8000, 15_000),),
        shows=Shows(anomalies=("stuck", "lost-write", "lost-on-node", "diverged", "corrupted")),
        run_on="5.0.0",
        control_on="5.1.0",
        why="A slave without a pool becomes the master.",
    ),
    # -- the lists of epochs, and what is cut away by them
    Row(
        id="KB-RKT-C",
        has=releases("5.0.0"),
        read_in="store/ha/autoswitch/AutoSwitchHAService.java, changeToMaster: the entry of the "
        "epoch is dropped, and made anew with where the log ends now",
        setup=Setup(
            replication="controller",
            profile="safe",
            services=CONTROLLER_AT_N1,
            time_limit_ms=45_000,
            settle_timeout_ms=40_000,
            must_settle=True,
        ),
        faults=_NO_ELECTION,
        shows=Shows(
            anomalies=("stuck",), with_line=Lines(pattern=r"newMasterEpoch:1, startOffset:[1-9]")
        ),
        run_on="5.5.0",
        why="The node of the only controller is killed with the master, and both come back. No "
        "node was elected, so the master is told that it is that of its epoch still; its list says "
        "now that the epoch begins where its log ended. The slaves' lists say that it began at 0, "
        "so they find nothing in common, and with minInSyncReplicas=2 nothing is acknowledged ever "
        "again. With three controllers a restart of all nodes does the same, if the master is back "
        "before another node asks for an election.",
        ours=Ours(system="controller", bug="KB-RKT-C", anomalies=("stuck",)),
    ),
    Row(
        id="KB-RKT-22",
        has=releases("5.0.0"),
        read_in="store/ha/autoswitch/AutoSwitchHAClient.java, doTruncate, and EpochFileCache.java, "
        "findConsistentPoint: without an epoch in common it is tried again for ever",
        setup=Setup(
            replication="controller",
            services=CONTROLLER_AT_N1,
            time_limit_ms=35_000,
            rate_hz=40,
            must_settle=True,
        ),
        faults=_RESTART_IN_EPOCH,
        shows=Shows(
            lines=Lines(pattern="Failed to find a consistent point between masterEpoch", least=3)
        ),
        run_on="5.5.0",
        why="KB-RKT-C's plan, after which slaves and master know the one epoch that there was with "
        "different beginnings. No slave ever follows again.",
        ours=Ours(system="controller", bug="KB-RKT-22", anomalies=("stuck",)),
    ),
    Row(
        id="KB-RKT-23",
        has=releases("5.0.0"),
        read_in="store/MappedFileQueue.java, truncateDirtyFiles: positions are set back, and the "
        "bytes behind them stay",
        setup=Setup(replication="controller", time_limit_ms=58_000, must_converge=True),
        faults=(
            fault(1, "partition-isolate-master", "master", 6000, 22_000),
            fault(2, "kill", "n1", 36_000, 500),
        ),
        shows=Shows(anomalies=("diverged",)),
        run_on="5.3.3",
        why="KB-RKT-17's master has cut away what it wrote alone, and copies the new one's log "
        "over it. Before it has come as far as it was, it is killed: recovery reads on into the "
        "old bytes, which are whole messages, and takes them for its own.",
        ours=Ours(system="controller", bug="KB-RKT-23"),
    ),
    Row(
        id="KB-RKT-21",
        has=releases("5.1.1", "5.3.3"),
        free=releases("5.4.0"),
        read_in="store/ha/autoswitch/EpochFileCache.java, appendEntry, and AutoSwitchHAClient.java,"
        " doTruncate: the newest epoch is dropped where nothing is cut; "
        "AutoSwitchHAConnection.java in 5.4.0",
        setup=Setup(
            replication="controller",
            time_limit_ms=60_000,
            rate_hz=1,
            clients_a_node=1,
            must_settle=True,
        ),
        faults=(
            fault(1, "kill", "master", 12_000, 3000),
            fault(2, "kill", "master", 13_200, 6000),
            fault(3, "kill", "master", 36_000, 3000),
            fault(4, "kill", "master", 37_200, 6000),
        ),
        shows=Shows(lines=Lines(pattern="Failed to find epochEntry", least=1)),
        run_on="5.3.3",
        control_on="5.5.0",
        why="Two masters die one after the other, and nothing is written between their elections: "
        "the second epoch begins where the first one did.",
    ),
    # -- controllers that have jRaft for their Raft (controllerType=jRaft, since 5.2.0)
    Row(
        id="KB-RKT-28",
        has=releases("5.2.0", "5.3.3"),
        free=releases("5.4.0"),
        read_in="controller/impl/heartbeat/RaftBrokerHeartBeatManager.java, scanNotActiveBroker: "
        "the scan is left out as soon as a second has passed since the first heartbeat; 5.4.0 "
        "compares the other way round",
        setup=Setup(
            replication="controller", policy=JRAFT, time_limit_ms=60_000, max_rto_ms=35_000
        ),
        faults=(fault(1, "pause", "master", 6000, 48_000),),
        shows=Shows(anomalies=("unavailable",)),
        run_on="5.3.3",
        control_on="5.5.0",
        why="The master's node stands still, and no connection to it ends. It is not missed, and "
        "nothing is acknowledged until it goes on.",
        ours=Ours(system="controller", bug="KB-RKT-28", policy=OURS),
    ),
    Row(
        id="KB-RKT-29",
        has=releases("5.2.0"),
        read_in="controller/impl/manager/RaftReplicasInfoManager.java, checkNotActiveBroker: what "
        "scanNeedReelectBrokerSets takes for a living broker is a dead one, in every release",
        setup=Setup(replication="controller", policy=JRAFT, time_limit_ms=40_000),
        faults=(fault(1, "kill", "n3", 6000, 28_000),),
        shows=Shows(
            lines=Lines(
                pattern="old master .* is still alive, not need to elect new master",
                least=3,
                service="nameserver",
            )
        ),
        run_on="5.5.0",
        control_policy={"controllerType": "DLedger"},
        why="A slave dies. The scan takes the master, which is alive, for a dead one and the dead "
        "slave for its heir, and has an election held every 5 s, which finds that the master is "
        "there. (That a dead master is not replaced is not seen: who died is told by another list, "
        "and brokers ask for elections themselves.)",
    ),
    # -- losses that the settings allow: no bug, and what production runs
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
