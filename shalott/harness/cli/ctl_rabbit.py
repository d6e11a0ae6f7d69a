"""``shalott ctl`` with a verb of rabbitmqctl: the same words, asked of a run's nodes.

The verbs themselves are the broker's (broker/rabbit/ctl/), which its image has as ``rabbitmqctl``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import typer

Address = tuple[str, int]

# Their names alone: what they do is imported when one is typed.
RABBIT_VERBS = (
    *("set_policy", "clear_policy", "list_policies", "list_queues", "list_exchanges"),
    *("list_bindings", "list_connections", "list_channels", "list_consumers", "list_vhosts"),
    *("sync_queue", "cancel_sync_queue", "gm_ring"),
    *("add_vhost", "delete_vhost"),
    *("cluster_status", "stop_app", "start_app", "forget_cluster_node"),
)


def as_rabbitmqctl(
    words: Sequence[str], nodes: Callable[[str], Mapping[str, Address]], node: str
) -> int:
    """Do it; returns the exit code. ``nodes``: addresses, of all or of the one that is named. The
    first that answers is asked, as any node of a cluster may be. Raises UsageError.
    """
    import asyncio

    from shalott.broker.base.http_client import Asked
    from shalott.broker.rabbit.ctl.session import EXIT_UNAVAILABLE, CtlError
    from shalott.broker.rabbit.ctl.verbs import read, run

    try:
        typed = read(words)
    except CtlError as error:
        typer.echo(error.text, err=True)
        return error.exit_code
    timeout_s = float(typed.options.get("--timeout", "60"))
    exit_code = EXIT_UNAVAILABLE
    for name, (host, port) in nodes(typed.node or node).items():
        outcome = asyncio.run(run(typed, Asked(host, port, timeout_s=timeout_s), name))
        exit_code = outcome.exit_code
        if exit_code != EXIT_UNAVAILABLE:
            break
    typer.echo(outcome.stdout, nl=False)
    typer.echo(outcome.stderr, nl=False, err=True)
    return exit_code
