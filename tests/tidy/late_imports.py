"""Imports inside functions, the whole list: by file, the module, and why it is not at the top.

Milliseconds are what a command that does not need the module would take longer to start, measured
as CPU time in a fresh interpreter that has imported the file's own module. An extra may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping

LATE_IMPORTS: Mapping[str, Mapping[str, str]] = {
    "broker/nodes.py": {
        "shalott.broker.rabbit.node.node": "270 ms, of the other family",
        "shalott.broker.rocket.node.node": "290 ms, of the other family",
    },
    "checkers/engine/freshness.py": {
        "hashlib": "7 ms",
    },
    "checkers/linearizability/checking.py": {
        "shalott.checkers.models.outside": "3 ms",
        "shalott.checkers.linearizability.explain": "20 ms",
    },
    "checkers/models/__init__.py": {
        "shalott.checkers.models.outside": "17 ms",
    },
    "checkers/reading/edn.py": {
        "json": "2 ms",
    },
    "checkers/reading/text_history.py": {
        "json": "2 ms",
    },
    "checkers/reading/formats.py": {
        "shalott.checkers.reading.own_entries": "100 ms",
    },
    "checkers/reading/history_files.py": {
        "shalott.checkers.reading.foreign_history": "30 ms",
        "shalott.checkers.reading.text_history": "19 ms",
        "shalott.checkers.reading.parquet_history": "98 ms",
    },
    "checkers/reading/parquet_history.py": {
        "shalott.checkers.reading.foreign_history": "30 ms",
    },
    "clients/amqp_libraries/aio_pika_library.py": {
        "aio_pika": "44 ms, an extra",
        "aio_pika.exceptions": "43 ms, an extra",
    },
    "clients/amqp_libraries/pika_library.py": {
        "pika": "11 ms, an extra",
    },
    "clients/cpp/program.py": {
        "rocketmq": "0 ms, an extra, x86-64 Linux alone",
        "rocketmq.client": "18 ms, an extra, x86-64 Linux alone",
        "rocketmq.exceptions": "16 ms, an extra, x86-64 Linux alone",
        "rocketmq.ffi": "14 ms, an extra, x86-64 Linux alone",
    },
    "cluster/existing/backend.py": {
        "shalott.cluster.existing.hosts": "120 ms, and an extra",
    },
    "cluster/compose/record.py": {
        "shalott.cluster.compose.project": "30 ms, and yaml is an extra",
        "shalott.cluster.compose.system": "2 ms, and yaml is an extra",
    },
    "cluster/systems/rabbit/mirrored.py": {
        "shalott.cluster.systems.rabbit.simulated_replicas": "236 ms",
    },
    "cluster/systems/rocket/rocketmq.py": {
        "shalott.cluster.sim.rest": "40 ms",
        "shalott.cluster.systems.rocket.simulated_rest": "200 ms",
    },
    "cluster/systems/rabbit/records.py": {
        "shalott.cluster.systems.rabbit.mirrored": "30 ms",
        "shalott.cluster.systems.rabbit.rabbitmq": "30 ms",
        "shalott.cluster.systems.broker_program": "398 ms",
    },
    "cluster/systems/rocket/records.py": {
        "shalott.cluster.systems.rocket.master_slave": "45 ms",
        "shalott.cluster.systems.rocket.rocketmq": "43 ms",
        "shalott.cluster.systems.broker_program": "405 ms",
    },
    "cluster/systems/rocketmq_original/records.py": {
        "shalott.cluster.systems.rocketmq_original.operator": "218 ms",
        "shalott.cluster.systems.rocketmq_original.system": "200 ms",
    },
    "core/doors.py": {
        "importlib.metadata": "17 ms",
    },
    "harness/cli/check_file.py": {
        "shalott.checkers.linearizability.explain": "23 ms",
        "shalott.checkers.judge": "9 ms",
        "shalott.checkers.reading.entries": "6 ms",
        "shalott.checkers.reading.keyed_entries": "1 ms",
        "shalott.checkers.wanted": "17 ms",
    },
    "harness/cli/check_lines.py": {
        "shalott.checkers.judge": "9 ms",
        "shalott.harness.cli.check_page": "21 ms",
        "shalott.checkers.models.outside": "3 ms",
        "shalott.core.doors": "2 ms",
    },
    "harness/cli/check_request.py": {
        "shalott.harness.run.store": "98 ms",
        "shalott.checkers.porcupine.porcupine": "15 ms",
    },
    "harness/cli/checking.py": {
        "shalott.checkers.judge": "9 ms",
        "concurrent.futures": "12 ms",
    },
    "harness/cli/doctor.py": {
        "shalott.cluster.ssh": "an extra",
        "shalott.cluster.ssh.connection": "81 ms, and an extra",
        "shalott.cluster.ssh.upload": "101 ms, and an extra",
    },
    "harness/cli/doctor_machine.py": {
        "shalott.cluster.docker.engine": "131 ms, and an extra",
        "shalott.cluster.docker.images": "161 ms, and an extra",
        "shalott.cluster.docker.names": "1 ms, and an extra",
        "shalott.cluster.docker.packets": "49 ms, and an extra",
        "shalott.cluster.docker.disks": "142 ms, and an extra",
    },
    "harness/cli/machines.py": {
        "shalott.cluster.docker.engine": "139 ms, and an extra",
        "shalott.cluster.docker.images": "178 ms, and an extra",
    },
    "harness/cli/main.py": {
        "shalott.harness.cli.unforeseen": "41 ms",
        "shalott.harness.cli.checking": "277 ms",
        "importlib.metadata": "24 ms",
        "shalott.cluster.compose.record": "60 ms",
        "shalott.harness.run.junit_file": "428 ms",
        "shalott.harness.cli.commands": "46 ms",
        "shalott.harness.run.request": "75 ms",
    },
    "harness/cli/pictures.py": {
        "shalott.harness.pictures.drawing": "550 ms, and an extra",
    },
    "harness/cli/serve.py": {
        "shalott.harness.serve.app": "769 ms",
    },
    "harness/run/backends.py": {
        "shalott.cluster.docker.engine": "135 ms, and an extra",
        "shalott.cluster.local.backend": "56 ms",
        "shalott.cluster.docker.backend": "209 ms, and an extra",
        "shalott.cluster.existing.backend": "210 ms, and an extra",
        "shalott.cluster.existing.guard": "150 ms, and an extra",
        "shalott.cluster.ssh.backend": "137 ms, and an extra",
        "shalott.cluster.ssh.sweep": "112 ms, and an extra",
        "shalott.cluster.disks.mounting": "24 ms",
        "shalott.cluster.local.sweep": "41 ms",
        "shalott.cluster.docker.sweep": "221 ms, and an extra",
    },
    "harness/run/request.py": {
        "shalott.cluster.existing.project": "135 ms, and an extra",
    },
    "harness/run/provenance.py": {
        "shalott.cluster.docker.images": "153 ms, and an extra",
    },
    "harness/testing/pytest_plugin.py": {
        "shalott.harness.testing.from_pytest": "660 ms",
    },
    "spark_analysis/hadoop_store.py": {
        "pyspark.errors": "78 ms, an extra",
    },
    "spark_analysis/kernels/judge.py": {
        "shalott.spark_analysis.kernels.order": "90 ms",
        "shalott.spark_analysis.kernels.logs": "13 ms",
        "shalott.checkers.consumers.consume_case": "24 ms",
        "shalott.spark_analysis.kernels.consumers": "46 ms",
        "shalott.checkers.groups.group_case": "36 ms",
        "shalott.spark_analysis.kernels.groups": "82 ms",
    },
    "spark_analysis/spark_kernels.py": {
        "pyspark.sql": "80 ms, an extra",
    },
    "spark_analysis/spark_session.py": {
        "pyspark": "72 ms, an extra",
        "pyspark.sql": "67 ms, an extra",
        "pyspark.errors": "70 ms, an extra",
    },
    "spark_analysis/sql_engine.py": {
        "shalott.spark_analysis.sql": "a session must run when it is imported",
        "shalott.spark_analysis.sql.dual_masters": "a session must run when it is imported",
        "pyspark.sql": "79 ms, an extra",
        "shalott.spark_analysis.sql.lost_messages": "a session must run when it is imported",
        "shalott.spark_analysis.sql.consumed_messages": "a session must run when it is imported",
        "shalott.spark_analysis.sql.group_messages": "a session must run when it is imported",
    },
    "spark_analysis/stored_runs.py": {
        "shalott.workloads.consume": "198 ms",
        "shalott.workloads.group_parameters": "86 ms",
        "shalott.workloads.record": "8 ms",
    },
    "spark_analysis/submit.py": {
        "rich.console": "the path is mended first",
        "shalott.core.errors": "the path is mended first",
        "shalott.spark_analysis.findings": "the path is mended first",
        "shalott.spark_analysis.report": "the path is mended first",
        "shalott.spark_analysis.store_stream": "the path is mended first",
    },
}
