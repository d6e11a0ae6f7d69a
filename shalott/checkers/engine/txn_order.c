/* The order of processes and of time.
 *
 * A process does one thing after the other; in time, a transaction that completed comes before all
 * that were called later. Written out, these relations grow with the square. So each completion
 * has a vertex, from which an edge leads to that of the next completion, and to those that were
 * called between the two: three edges a transaction, with the same paths, each of one step. */
#include "internal_txn.h"

#include <stddef.h>

static int order_processes(shl_txns *txns)
{
    int64_t bytes = txns->asker_count * (int64_t)sizeof(int32_t);
    int32_t *newest = shl_alloc(txns->budget, bytes); /* vertex of its last completion */
    if (!newest)
        return 0;
    for (int64_t p = 0; p < txns->asker_count; p++)
        newest[p] = SHL_NONE;
    int done = 1;
    for (int64_t t = 0; done && t < txns->count; t++) {
        const shl_txn *txn = &txns->txns[t];
        int32_t before = newest[txn->process];
        if (shl_txn_may_have_happened(txn) && before != SHL_NONE)
            done = shl_txn_edge(txns, before, (int32_t)t, SHL_EDGE_PASS, SHL_NONE);
        if (!done || txn->type != SHL_TXN_OK)
            continue;
        int32_t vertex = newest[txn->process] = shl_txn_vertex(txns);
        done = shl_txn_edge(txns, (int32_t)t, vertex, SHL_EDGE_PROCESS, SHL_NONE) &&
               (before == SHL_NONE ||
                shl_txn_edge(txns, before, vertex, SHL_EDGE_PASS, SHL_NONE));
    }
    shl_free(txns->budget, newest, bytes);
    return done;
}

/* Transactions by the event of their completion; SHL_NONE: another event. */
static int32_t *completions(shl_txns *txns)
{
    int32_t *at = shl_alloc(txns->budget, txns->events * (int64_t)sizeof(int32_t));
    for (int64_t e = 0; at && e < txns->events; e++)
        at[e] = SHL_NONE;
    for (int64_t t = 0; at && t < txns->count; t++)
        if (txns->txns[t].type == SHL_TXN_OK)
            at[txns->txns[t].ret] = (int32_t)t;
    return at;
}

int32_t shl_txn_order(shl_txns *txns)
{
    if (!order_processes(txns))
        return 0;
    if (!txns->has_calls)
        return 1;
    int32_t *completed = completions(txns);
    int done = completed != NULL;
    int32_t newest = SHL_NONE; /* the vertex of the last completion */
    int64_t event = 0;
    for (int64_t t = 0; done && t < txns->count; t++) { /* transactions are in order of calls */
        const shl_txn *txn = &txns->txns[t];
        for (; done && event < txn->call; event++) {
            if (completed[event] == SHL_NONE)
                continue;
            int32_t vertex = shl_txn_vertex(txns);
            done = newest == SHL_NONE ||
                   shl_txn_edge(txns, newest, vertex, SHL_EDGE_PASS, SHL_NONE);
            done = done && shl_txn_edge(txns, completed[event], vertex, SHL_EDGE_REALTIME,
                                        SHL_NONE);
            newest = vertex;
        }
        if (done && txn->call != SHL_NONE && newest != SHL_NONE && shl_txn_may_have_happened(txn))
            done = shl_txn_edge(txns, newest, (int32_t)t, SHL_EDGE_PASS, SHL_NONE);
    }
    shl_free(txns->budget, completed, txns->events * (int64_t)sizeof(int32_t));
    return done;
}
