"""Lines that are typed at a node of ours and at one of RabbitMQ 3.10.8, in this order, on the same
state: what each printed and how it ended is recorded in rabbitmqctl.json.

``python -m tests.broker.rabbit.ctl.beside_rabbitmqctl`` records it anew, where Debian's
rabbitmq-server is installed.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.world.rabbit.original_tools import running_original

RECORDED = Path(__file__).with_name("rabbitmqctl.json")
Said = tuple[int, str, str]  # exit code, stdout, stderr

# The verbs of its help.
VERBS = [
    "autocomplete",
    "help",
    "version",
    "await_startup",
    "reset",
    "rotate_logs",
    "shutdown",
    "start_app",
    "stop",
    "stop_app",
    "wait",
    "await_online_nodes",
    "change_cluster_node_type",
    "cluster_status",
    "force_boot",
    "force_reset",
    "forget_cluster_node",
    "join_cluster",
    "rename_cluster_node",
    "update_cluster_nodes",
    "cancel_sync_queue",
    "sync_queue",
    "add_user",
    "authenticate_user",
    "change_password",
    "clear_password",
    "clear_user_limits",
    "delete_user",
    "list_user_limits",
    "list_users",
    "set_user_limits",
    "set_user_tags",
    "clear_permissions",
    "clear_topic_permissions",
    "list_permissions",
    "list_topic_permissions",
    "list_user_permissions",
    "list_user_topic_permissions",
    "list_vhosts",
    "set_permissions",
    "set_topic_permissions",
    "list_bindings",
    "list_channels",
    "list_ciphers",
    "list_connections",
    "list_consumers",
    "list_exchanges",
    "list_hashes",
    "list_node_auth_attempt_stats",
    "list_queues",
    "list_unresponsive_queues",
    "ping",
    "report",
    "schema_info",
    "status",
    "clear_global_parameter",
    "clear_parameter",
    "list_global_parameters",
    "list_parameters",
    "set_global_parameter",
    "set_parameter",
    "clear_operator_policy",
    "clear_policy",
    "list_operator_policies",
    "list_policies",
    "set_operator_policy",
    "set_policy",
    "add_vhost",
    "clear_vhost_limits",
    "delete_vhost",
    "list_vhost_limits",
    "restart_vhost",
    "set_vhost_limits",
    "set_vhost_tags",
    "trace_off",
    "trace_on",
    "decode",
    "encode",
    "environment",
    "set_cluster_name",
    "set_disk_free_limit",
    "set_log_level",
    "set_vm_memory_high_watermark",
    "export_definitions",
    "import_definitions",
    "enable_feature_flag",
    "list_feature_flags",
    "close_all_connections",
    "close_all_user_connections",
    "close_connection",
    "eval",
    "eval_file",
    "exec",
    "force_gc",
    "resume_listeners",
    "suspend_listeners",
    "delete_queue",
    "purge_queue",
    "hipe_compile",
    "node_health_check",
]

LINES = """
add_user al secret
add_user al secret
add_user "" x
add_user
authenticate_user al secret
authenticate_user al wrong
authenticate_user al secret --formatter json
change_password al new
change_password nono new
set_user_tags al administrator foo
set_user_tags nono x
list_users
list_users --formatter json
list_users --formatter csv
list_users --formatter pretty_table
list_users extra
clear_password al
authenticate_user al new
delete_user nono
set_permissions -p / al ^a .* .*
set_permissions -p none al ^a .* .*
set_permissions -p / nono ^a .* .*
list_permissions
list_permissions -p none
list_user_permissions al
list_user_permissions al --formatter json
list_user_permissions nono
clear_permissions -p / al
clear_permissions -p / al
clear_permissions -p none al
set_topic_permissions -p / al amq.topic ^w ^r
set_topic_permissions -p none al amq.topic ^w ^r
set_topic_permissions -p / nono amq.topic ^w ^r
list_topic_permissions
list_topic_permissions -p none
list_user_topic_permissions al
list_user_topic_permissions nono
clear_topic_permissions -p / al amq.topic
clear_topic_permissions al
clear_topic_permissions nono
set_user_limits al '{"max-connections":3}'
set_user_limits al '{"max-foo":3}'
set_user_limits al x
set_user_limits nono '{"max-connections":3}'
list_user_limits
list_user_limits --user al
list_user_limits --user nono
list_user_limits --global
clear_user_limits al max-connections
clear_user_limits al all
clear_user_limits nono all
delete_user al
add_vhost v1 --description told --tags x
add_vhost v1
list_vhosts
list_vhosts name description tracing
list_vhosts colour
set_vhost_tags v1 q r
set_vhost_tags none q r
list_vhosts name tags --formatter json
restart_vhost -p v1
restart_vhost -p none
set_vhost_limits -p v1 '{"max-queues":3}'
set_vhost_limits -p v1 '{"max-foo":3}'
set_vhost_limits -p none '{"max-queues":3}'
set_vhost_limits -p v1 x
list_vhost_limits
list_vhost_limits -p v1
list_vhost_limits -p none
list_vhost_limits --global
list_vhost_limits -p v1 --formatter json
clear_vhost_limits -p v1
clear_vhost_limits -p none
set_parameter -p v1 vhost-limits limits '{"max-queues":3}'
set_parameter -p v1 foo x 1
set_parameter -p none vhost-limits limits '{"max-queues":3}'
set_parameter -p v1 vhost-limits limits x
list_parameters -p v1
list_parameters -p none
list_parameters -p v1 --formatter json
clear_parameter -p v1 vhost-limits limits
clear_parameter -p v1 vhost-limits limits
list_parameters -p v1
set_global_parameter colour '{"a":1}'
set_global_parameter colour x
clear_global_parameter colour
clear_global_parameter colour
set_policy -p none a b '{"max-length":1}'
set_policy pp b '{"max-length":1}' --apply-to foo
set_policy pp b x
set_policy pp b '{"max-length":1}' --priority x
set_policy pp b
set_policy --priority 2 --apply-to queues pp ^b '{"max-length":1}'
list_policies
list_policies --formatter json
list_policies -p none
set_operator_policy op ^b '{"max-length":1}'
list_operator_policies
clear_operator_policy op
clear_operator_policy op
clear_policy pp
clear_policy pp
list_policies
list_policies -s
delete_queue nono
delete_queue nono --if-empty
purge_queue nono
purge_queue
sync_queue nono
cancel_sync_queue nono
close_connection foo bye
close_connection
close_all_connections bye
close_all_connections -p v1 bye
close_all_user_connections guest bye
list_unresponsive_queues
list_queues
list_queues -q
list_queues -t 5 name
list_queues --formatter json
list_queues foo
list_queues --foo
list_queues --formatter
list_queues -p none
list_exchanges -p none
list_bindings -p none
list_consumers -p none
list_connections
list_channels
list_consumers
list_bindings
await_startup
await_online_nodes 1
await_online_nodes x
await_online_nodes 2 --timeout 1
version
--version
rotate_logs
set_log_level debug
set_log_level foo
set_log_level info
set_cluster_name foo
set_disk_free_limit 100MB
set_disk_free_limit mem_relative 0.001
set_disk_free_limit foo
set_disk_free_limit mem_relative
set_disk_free_limit 50000000
set_vm_memory_high_watermark 0.5
set_vm_memory_high_watermark 1.5
set_vm_memory_high_watermark foo
set_vm_memory_high_watermark absolute 1XB
set_vm_memory_high_watermark absolute 1GB
set_vm_memory_high_watermark
suspend_listeners
resume_listeners
wait
wait --pid 99999999
wait nofile --timeout 1
export_definitions /none/x.json
import_definitions /none/x.json
status --unit foo
join_cluster x@localhost
reset
force_boot
change_cluster_node_type ram
change_cluster_node_type foo
forget_cluster_node x@localhost
forget_cluster_node --offline x@localhost
update_cluster_nodes x@localhost
help nosuch
list_queue
autocomplete list_q
delete_vhost v1
delete_vhost v1
stop_app
stop_app
list_queues
list_users
add_user zz zz
await_startup --timeout 1
status
cluster_status
force_boot
change_cluster_node_type foo
start_app
start_app
await_startup
""".strip().splitlines()


def plain(said: Said, node: str) -> Said:
    """Without what is a node's own; of a mistake what it is, and the usage is the verb's."""
    exit_code, stdout, stderr = said

    def same(text: str) -> str:
        text = text.replace(node, "NODE")
        return re.sub(r"<[\w@.]+\.\d+\.\d+(?:\.\d+)?>", "PID", text).rstrip("\n")

    return exit_code, same(stdout), same(stderr.partition("Arguments given:")[0])


def record(type_line: Callable[[str], Said], node: str) -> list[list[object]]:
    return [[line, *plain(type_line(line), node)] for line in LINES]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, running_original(Path(directory)) as one:

        def typed(line: str) -> Said:
            sys.stderr.write(f"{line}\n")
            done = one.ctl(*shlex.split(line))
            return done.returncode, done.stdout, done.stderr

        told = record(typed, one.name)
    lines = ",\n".join(json.dumps(each) for each in told)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
