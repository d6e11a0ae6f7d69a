"""All that a plug-in needs of Shalott, in one import: ``from shalott.api import SystemRecord``.

A system, workload, fault, checker or model of others imports this module and nothing else of
Shalott. A name is imported from its home when it is first asked for, so that a program on a node
that wants a disk does not load the checkers.

``API_VERSION`` is MAJOR.MINOR. MINOR grows when a name or a field comes, which has a default.
MAJOR grows when one goes or changes its meaning, which CHANGELOG.md tells two minor versions before
it happens; until then the old name warns. What is not in this module may change at any time.
(docs/how-to/extend.md)
"""

# ruff: isort: skip_file
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shalott.broker.base.disk import (
        Disk as Disk,
        OsDisk as OsDisk,
    )
    from shalott.broker.base.http_api import (
        Request as Request,
        Response as Response,
        json_response as json_response,
    )
    from shalott.broker.base.http_server import (
        ManagementServer as ManagementServer,
    )
    from shalott.checkers.checker import (
        Anomaly as Anomaly,
        Checker as Checker,
        CheckerRecord as CheckerRecord,
        Result as Result,
        merge_valid as merge_valid,
    )
    from shalott.checkers.history.columns import (
        Operations as Operations,
        client_operations as client_operations,
    )
    from shalott.checkers.history.concurrent import (
        UNKNOWN as UNKNOWN,
        Operation as Operation,
    )
    from shalott.checkers.history.faults import (
        Surroundings as Surroundings,
        read_surroundings as read_surroundings,
    )
    from shalott.checkers.judge import (
        JudgeOfRuns as JudgeOfRuns,
    )
    from shalott.checkers.linearizability.run_checker import (
        Linearizability as Linearizability,
    )
    from shalott.checkers.models import (
        Meaning as Meaning,
        Model as Model,
        OneOf as OneOf,
    )
    from shalott.checkers.queues.total_queue import (
        TotalQueue as TotalQueue,
    )
    from shalott.cluster.cluster import (
        Cluster as Cluster,
    )
    from shalott.cluster.http import (
        Management as Management,
        exchange as exchange,
    )
    from shalott.cluster.nodes import (
        CommandResult as CommandResult,
        Endpoint as Endpoint,
        NodeSpec as NodeSpec,
        NodeStatus as NodeStatus,
        Topology as Topology,
    )
    from shalott.cluster.sim.loop.processes import (
        SimProcess as SimProcess,
    )
    from shalott.cluster.sim.machine import (
        Machine as Machine,
        Program as Program,
    )
    from shalott.cluster.system import (
        AcknowledgesUnlogged as AcknowledgesUnlogged,
        ChangesMembers as ChangesMembers,
        DeclaresQueues as DeclaresQueues,
        EventRow as EventRow,
        ExplainsUnsettled as ExplainsUnsettled,
        FailsOver as FailsOver,
        HasArtifacts as HasArtifacts,
        HasPackages as HasPackages,
        MendsPartitions as MendsPartitions,
        NamesGroups as NamesGroups,
        NodesDiffer as NodesDiffer,
        Observation as Observation,
        RecordsReplicas as RecordsReplicas,
        System as System,
        TakesReports as TakesReports,
        TellsHeld as TellsHeld,
        TellsSynchronisations as TellsSynchronisations,
        WritesEvents as WritesEvents,
        members_of as members_of,
    )
    from shalott.cluster.systems.members_by_tool import (
        MembersByTool as MembersByTool,
    )
    from shalott.cluster.systems.rabbit.rabbitmq_log import (
        read_rabbitmq_logs as read_rabbitmq_logs,
    )
    from shalott.cluster.systems.rabbit.rabbitmq_node import (
        rabbitmq_configuration as rabbitmq_configuration,
        rabbitmq_specs as rabbitmq_specs,
    )
    from shalott.cluster.systems.record import (
        Drawn as Drawn,
        Footprint as Footprint,
        Layouts as Layouts,
        Locks as Locks,
        LogPromises as LogPromises,
        LogReaders as LogReaders,
        Partitions as Partitions,
        Profile as Profile,
        Queues as Queues,
        Registers as Registers,
        Search as Search,
        SystemRecord as SystemRecord,
        Transactions as Transactions,
    )
    from shalott.cluster.systems.settling import (
        await_nodes as await_nodes,
        await_settled as await_settled,
    )
    from shalott.core.client import (
        Client as Client,
        ClientRows as ClientRows,
        Holding as Holding,
        MakeClient as MakeClient,
        Recording as Recording,
        Watchful as Watchful,
    )
    from shalott.core.documented_loss import (
        DocumentedLoss as DocumentedLoss,
    )
    from shalott.core.errors import (
        BootFailed as BootFailed,
        ClientError as ClientError,
        Definite as Definite,
        HarnessError as HarnessError,
        Indefinite as Indefinite,
        ShalottError as ShalottError,
        Unreachable as Unreachable,
        UsageError as UsageError,
    )
    from shalott.core.generator import (
        Answer as Answer,
        Completed as Completed,
        Context as Context,
        Generator as Generator,
        Pending as Pending,
        Phases as Phases,
        Scheduled as Scheduled,
        Stagger as Stagger,
        TimeLimit as TimeLimit,
    )
    from shalott.core.history import (
        EVENT_SCHEMA as EVENT_SCHEMA,
        HISTORY_SCHEMA as HISTORY_SCHEMA,
        History as History,
        Recorder as Recorder,
        read_history as read_history,
    )
    from shalott.core.message_body import (
        decode_body as decode_body,
        encode_body as encode_body,
    )
    from shalott.core.op import (
        Completion as Completion,
        Invocation as Invocation,
        OpType as OpType,
    )
    from shalott.core.parameters import (
        NoParameters as NoParameters,
        make_parameters as make_parameters,
    )
    from shalott.core.plan import (
        Effect as Effect,
        FaultAction as FaultAction,
        GatePlan as GatePlan,
        Plan as Plan,
        names_prefix as names_prefix,
    )
    from shalott.core.queue_generator import (
        Drain as Drain,
        QueueMix as QueueMix,
        drain as drain,
        queue_mix as queue_mix,
    )
    from shalott.core.queued import (
        Queued as Queued,
        Received as Received,
    )
    from shalott.core.registers import (
        Registered as Registered,
    )
    from shalott.core.rng import (
        Draw as Draw,
        Range as Range,
        Stream as Stream,
        draw_below as draw_below,
        draw_float as draw_float,
        stream_key as stream_key,
    )
    from shalott.core.partitions import (
        Grouped as Grouped,
        Partitioned as Partitioned,
    )
    from shalott.core.transactions import (
        Mop as Mop,
        Transactor as Transactor,
    )
    from shalott.core.published import (
        PublishedFinding as PublishedFinding,
        Seen as Seen,
    )
    from shalott.nemesis.context import (
        FaultContext as FaultContext,
    )
    from shalott.nemesis.processes import (
        release as release,
    )
    from shalott.nemesis.proofs import (
        Check as Check,
        status_checks as status_checks,
    )
    from shalott.nemesis.record import (
        Amount as Amount,
        FaultRecord as FaultRecord,
    )
    from shalott.workloads.record import (
        SeveralPorts as SeveralPorts,
        Workload as Workload,
        WorkloadRecord as WorkloadRecord,
    )

API_VERSION = "1.0"

# By home, in the order in which docs/how-to/extend.md speaks of them.
_HOMES: dict[str, str] = {
    # Operations: what a client is asked and answers.
    "shalott.core.op": "Completion Invocation OpType",
    "shalott.core.client": "Client ClientRows Holding MakeClient Recording Watchful",
    "shalott.core.errors": (
        "BootFailed ClientError Definite HarnessError Indefinite ShalottError Unreachable "
        "UsageError"
    ),
    "shalott.core.transactions": "Mop Transactor",
    "shalott.core.partitions": "Grouped Partitioned",
    "shalott.core.queued": "Queued Received",
    "shalott.core.registers": "Registered",
    "shalott.core.message_body": "decode_body encode_body",
    "shalott.cluster.nodes": "CommandResult Endpoint NodeSpec NodeStatus Topology",
    "shalott.cluster.http": "Management exchange",
    # Plans, parameters, and random streams.
    "shalott.core.plan": "Effect FaultAction GatePlan Plan names_prefix",
    "shalott.core.parameters": "NoParameters make_parameters",
    "shalott.core.rng": "Draw Range Stream draw_below draw_float stream_key",
    # Workloads and their generators.
    "shalott.workloads.record": "SeveralPorts Workload WorkloadRecord",
    "shalott.core.generator": (
        "Answer Completed Context Generator Pending Phases Scheduled Stagger TimeLimit"
    ),
    "shalott.core.queue_generator": "Drain QueueMix drain queue_mix",
    # Systems.
    "shalott.cluster.systems.record": (
        "Drawn Footprint Layouts Locks LogPromises LogReaders Partitions Profile Queues Registers "
        "Search SystemRecord Transactions"
    ),
    "shalott.core.documented_loss": "DocumentedLoss",
    "shalott.cluster.cluster": "Cluster",
    "shalott.cluster.system": (
        "AcknowledgesUnlogged ChangesMembers DeclaresQueues EventRow ExplainsUnsettled FailsOver "
        "HasArtifacts HasPackages MendsPartitions NamesGroups NodesDiffer Observation "
        "RecordsReplicas System TakesReports TellsHeld TellsSynchronisations WritesEvents "
        "members_of"
    ),
    "shalott.cluster.systems.settling": "await_nodes await_settled",
    "shalott.cluster.systems.rabbit.rabbitmq_log": "read_rabbitmq_logs",
    "shalott.cluster.systems.rabbit.rabbitmq_node": "rabbitmq_configuration rabbitmq_specs",
    "shalott.cluster.systems.members_by_tool": "MembersByTool",
    "shalott.cluster.sim.machine": "Machine Program",
    "shalott.cluster.sim.loop.processes": "SimProcess",
    "shalott.broker.base.disk": "Disk OsDisk",
    "shalott.broker.base.http_api": "Request Response json_response",
    "shalott.broker.base.http_server": "ManagementServer",
    # Faults.
    "shalott.nemesis.record": "Amount FaultRecord",
    "shalott.nemesis.context": "FaultContext",
    "shalott.nemesis.processes": "release",
    "shalott.nemesis.proofs": "Check status_checks",
    # What is published of systems.
    "shalott.core.published": "PublishedFinding Seen",
    # Histories, checkers and models.
    "shalott.core.history": "EVENT_SCHEMA HISTORY_SCHEMA History Recorder read_history",
    "shalott.checkers.checker": "Anomaly Checker CheckerRecord Result merge_valid",
    "shalott.checkers.history.columns": "Operations client_operations",
    "shalott.checkers.history.faults": "Surroundings read_surroundings",
    "shalott.checkers.history.concurrent": "UNKNOWN Operation",
    "shalott.checkers.judge": "JudgeOfRuns",
    "shalott.checkers.models": "Meaning Model OneOf",
    "shalott.checkers.linearizability.run_checker": "Linearizability",
    "shalott.checkers.queues.total_queue": "TotalQueue",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = ["API_VERSION", *_HOME_OF]  # noqa: PLE0604

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"shalott.api {API_VERSION} has no {name}")
        found = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found
