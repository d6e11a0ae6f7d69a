"""Why a search does not come to some functions of the broker (unentered.py).

A name is that of a package, a module or a function, without ``shalott.broker.``; what stands below
it is covered too. ``a:b|c`` is ``a:b`` and ``a:c``. What a search enters has no place here:
``but`` names the searches, by system, or system and profile, of which the reason does not hold.
What could be searched and is not has no place here either.
"""

from __future__ import annotations

from dataclasses import dataclass

UPSTREAM = ("mirrored/upstream",)


@dataclass(frozen=True, slots=True)
class Reason:
    """``why``: one sentence that is true of all of them. ``names``: one a line, or several."""

    why: str
    names: str
    but: tuple[str, ...] = ()


REASONS: tuple[Reason, ...] = (
    Reason(
        "Only where processes, files, clocks and sockets are real: a simulation has its own.",
        """
        __main__ nodes:load_config base.errors:cannot_listen base.disk
        base.env:SystemClock|never|seeded_rng base.events:JsonlEventLog|_end_of_last_line
        base.http_server:ManagementServer:port base.http_server:Exchange:_linger
        rabbit.amqp.listener:Listener:port rocket.nameserver.server:NameServer:port
        rocket.remoting.server:RemotingServer:port
        """,
    ),
    Reason(
        "Lists of known bugs: for readers, no node looks into them.",
        """
        known_bugs rabbit.known_bugs rocket.known_bugs:_rocketmq|_dledger
        rocket.known_bugs_tested:_rocketmq|_dledger
        """,
    ),
    Reason(
        "Behind the switches of known bugs, which scenarios search with.",
        """
        rabbit.storage.lazy_sync rabbit.mirrored.rows:store_snapshot|clear_mirrors
        raft.follower:_is_stuck rocket.autoswitch.service:unknown_address
        """,
    ),
    Reason(
        "What operators of queues look at: tests/broker/rabbit/management and ctl ask for it.",
        """
        rabbit.amqp.alarms:Throttle:state rabbit.amqp.channel:Channel:info
        rabbit.amqp.channel_table:ChannelTable:__len__|ChannelTable:infos
        rabbit.amqp.confirms:UnconfirmedMessages:__len__ rabbit.amqp.connection:Connection:info
        rabbit.amqp.connection:Connection:channels rabbit.amqp.consuming:Consumers:infos
        rabbit.amqp.deliveries:Deliveries:__len__ rabbit.amqp.deliveries:Unsettled:__len__
        rabbit.amqp.listener:Listener:listening|Listener:connection_count
        rabbit.amqp.listener:Listener:connections|Listener:channels
        rabbit.amqp.verdicts:Verdicts:__len__
        rabbit.management.agent:ClientsAgent:_slow_answer|ClientsAgent:_begin
        rabbit.management.agent:ClientsAgent:_told_of|_done|of_all_nodes|_ask
        rabbit.management.backend:summed rabbit.management.clients:view_connection|view_channel
        rabbit.management.clients:view_consumer|clients_of_node|_all|list_connections
        rabbit.management.clients:show_connection|list_channels|list_consumers|_active_of
        rabbit.management.health rabbit.management.nodes:is_disk_alarm|view_node|list_nodes
        rabbit.management.nodes:show_node|listeners|_counted|overview|show_app
        rabbit.management.agent:ClientsAgent:handle_call
        rabbit.management.policies:PolicyApi:list_all|PolicyApi:routes
        rabbit.management.topology
        rabbit.management.vhosts:list_vhosts|show_vhost
        rabbit.management.users rabbit.management.metrics rabbit.management.definitions
        rabbit.management.views:look|looks_of_all|_look_of|list_views|own_ring|view_group
        rabbit.management.views:view_member|_pubs|name_of|show_ring|rings|in_flight|_from|_progress
        rabbit.metadata.tables:Tables:counts rabbit.metadata.vhosts:names
        rabbit.node.node:Node:connections|NodeView:started_ns|NodeView:memory|NodeView:alarms
        rabbit.node.node:NodeView:connections|NodeView:channels
        rabbit.queue_process.inspection:look_ring|_looks|_look
        rabbit.supervision.children:Children:tree rabbit.supervision.children:QueueSup:mode
        """,
    ),
    Reason(
        "Commands of operators that a search gives none of: tests/broker/rabbit give them.",
        """
        rabbit.management.clients:send_away|close_connection
        rabbit.amqp.listener:Listener:close_connection rabbit.node.node:NodeView:close_connection
        rabbit.management.nodes:act_on_app|_act|set_watermark
        rabbit.management.queues:purge_queue rabbit.management.vhosts:delete_vhost
        rabbit.metadata.permissions:of_vhost|problem_of|withdraw|_fits
        rabbit.metadata.vhosts:drop rabbit.mirrored.policy:validate_operators
        rabbit.node.clustering:Clustering:standing|Clustering:reset|Clustering:join
        rabbit.node.clustering:Clustering:enter|Clustering:force_boot|Clustering:_linked
        rabbit.node.clustering:Clustering:_ask|Clustering:_require_stopped
        rabbit.node.node:Node:begin_again|Node:go|Node:stop_app|Node:start_app|Node:disconnect
        rabbit.node.node:NodeApp:stop_app|NodeApp:start_app rabbit.ctl
        rabbit.node.node_state:Standing:afterwards|BeginAgain|read_standing|write_standing
        rabbit.node.node_state:begin_standing|remove_tree rabbit.processes.mesh:Mesh:disconnect
        rabbit.storage.memory:MemoryMonitor:set_limit rabbit.supervision.maintenance:_add_mirror
        rabbit.supervision.maintenance:_transfer_masters|_transfer|_await_master
        rabbit.supervision.children:is_asked_for
        """,
    ),
    Reason(
        "What a client is told that asks for what can't be: tests/broker/rabbit/amqp ask.",
        """
        rabbit.amqp.arguments:_one_of|_show|_invalid
        rabbit.amqp.client_socket:ClientSocket:discard rabbit.amqp.wire:Assembler:_unexpected
        rabbit.mirrored.policy:_term|_one_of_numbers|_string base.http_server:Exchange:_refuse
        """,
    ),
    Reason(
        "Tables of partition modes that wait for no majority: under pause_minority Raft has them.",
        """
        rabbit.metadata.booting rabbit.metadata.journal rabbit.metadata.leading
        rabbit.metadata.participant rabbit.metadata.server
        rabbit.metadata.membership:sides_of|choose_winner
        rabbit.metadata.partitions:PartitionHandler:handle_call|PartitionHandler:_check_partial
        rabbit.metadata.partitions:PartitionHandler:_partial_partition|PartitionHandler:_ask_all
        rabbit.metadata.partitions:PartitionHandler:_heal|PartitionHandler:_lost
        rabbit.metadata.partitions:PartitionHandler:_let_losers_go
        """,
        but=UPSTREAM,
    ),
    Reason(
        "Of the logs of the other systems: the tables' log is in memory, as a whole.",
        """
        raft.applier:Applier:loaded raft.driver:CoreDriver:_load_to_apply
        raft.journal_log:JournalLog:load
        """,
        but=("dledger",),
    ),
    Reason(
        "Journals: queues, tables and controllers have them.",
        """
        base.batches base.journal:Rewrite|Journal|_take_batch|_batches_of|_recover
        base.journal:_storage_error raft.journal_log
        """,
        but=("mirrored", "controller"),
    ),
    Reason(
        "Snapshots and what replaces them: a ledger is never cut.",
        """
        raft.applier:Applier:restore|Applier:take_snapshot raft.log:Log:install
        raft.driver:CoreDriver:_compact|CoreDriver:_send_snapshot raft.follower:_install
        """,
        but=("mirrored", "controller"),
    ),
    Reason(
        "The log of masters and slaves: under dledger the ledger is the log.",
        "rocket.commitlog.commit_log rocket.commitlog.retention",
        but=("master-slave", "controller"),
    ),
    Reason(
        "Replication without epochs: that of masters and slaves by configuration.",
        """
        rocket.ha.client rocket.ha.master_side rocket.ha.packets rocket.ha.replica rocket.ha.server
        rocket.ha.session rocket.ha.slave_side
        """,
        but=("master-slave",),
    ),
    Reason(
        "What members of a Raft group say: masters and slaves by configuration have none.",
        "rocket.remoting.raft_frames rocket.remoting.raft_transport",
        but=("dledger", "controller"),
    ),
    Reason(
        "What members of upstream's DLedger say and hear: no simulation has one.",
        """
        rocket.remoting.raft_originals:Refused|_answer|Originals:answer|Originals:_would_vote
        rocket.remoting.raft_originals:Originals:_compare|Originals:_truncate
        rocket.remoting.raft_originals:Originals:_has|Originals:_tell
        rocket.remoting.raft_frames:RaftFrames:encode_as_upstream
        rocket.remoting.raft_frames:RaftFrames:refusal|_before
        rocket.remoting.raft_transport:RaftTransport:_ask_original|RaftTransport:_invoke
        raft.election:_ask_again raft.follower:_begin_anew
        """,
    ),
    Reason(
        "What operators of RocketMQ look at: tests/broker/rocket ask for it.",
        """
        rocket.autoswitch.client:AutoSwitchHAClient:is_connected|AutoSwitchHAClient:rate_bytes_s
        rocket.autoswitch.connection:AutoSwitchHAConnection:rate_bytes_s
        rocket.autoswitch.copies:Copies:acks rocket.dledger.replica:DLedgerReplica:ha_status
        rocket.controller.live_settings:LiveSettings:text|_text
        rocket.controller.requests:Requests:_get_config rocket.ha.client:HaClient:status
        rocket.ha.group_transfer:GroupTransferService:waiting rocket.ha.slave_side:SlaveSide:status
        rocket.ha.replica:MasterSlaveReplica:ha_status
        rocket.nameserver.routes:Routes:data_version|Routes:topics|Routes:master
        rocket.nameserver.server:NameServer:_cluster_info|NameServer:_topic_list
        rocket.nameserver.server:NameServer:_query_data_version|NameServer:_get_config
        rocket.node.broker_service:_open_controlled:epoch_cache
        rocket.node.management:health|ha_status|controllers
        rocket.node.management:sync_state_set|members|_nodes|epoch_cache|_replicas|_id_of
        rocket.node.management:with_names|_name rocket.replicas.replica:AutoSwitchReplica:ha_status
        rocket.replicas.replica:AutoSwitchReplica:epoch_cache|ha_status|_client_info|_wall_ms
        rocket.processor.admin:ha_info|broker_config|runtime_info|ha_status
        """,
    ),
    Reason(
        "Commands of operators that a search gives none of: tests/broker/rocket give them.",
        """
        rocket.controller.live_settings:LiveSettings:change
        rocket.controller.requests:Requests:_update_config|_invalid
        rocket.nameserver.routes:Routes:touch|Routes:set_write_perm
        rocket.nameserver.server:NameServer:_put_config|NameServer:_delete_config
        rocket.nameserver.server:NameServer:_wipe_write_perm|NameServer:_add_write_perm
        rocket.controller.client:ControllerClient:clean_broker_data
        rocket.controller.decisions:clean_broker_data|_not_cleaned rocket.controller.state:_clean
        rocket.controller.requests:Requests:_clean_broker_data
        rocket.node.management:elect_master|forget_member
        rocket.processor.admin:update_broker_config
        """,
    ),
    Reason(
        "A promotion by hand: scenarios draw failover; no search does, as two masters that"
        " were cut off from each other stay two.",
        """
        rocket.ha.agreement rocket.ha.slave_side:SlaveSide:_agree|agreement_rules
        rocket.ha.replica:MasterSlaveReplica:promote|MasterSlaveReplica:follow|write_role
        rocket.ha.replica:MasterSlaveReplica:_agreed|MasterSlaveReplica:_cut
        rocket.node.management:promote|follow|no_broker|master_slave
        """,
    ),
    Reason(
        "Requests and encodings of other clients: tests/broker/rocket/remoting have them.",
        """
        rocket.remoting.codec:_decode_unusual|_integer|_language|_text|_encode_binary
        rocket.remoting.codec:_encode_field|_decode_binary|_decode_fields|_take_counted|_take
        rocket.remoting.java_json:with_quoted_keys|_quoted
        """,
    ),
)
