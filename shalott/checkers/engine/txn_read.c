/* Gathers transactions from entries: an invocation and its completion, by process, are one. What a
 * transaction did is told by its completion; what crashed, or never completed, or failed without a
 * word, is told by its invocation, and then nothing is known of what it read. */
#include "internal_txn.h"

#include <string.h>

shl_txns *shl_txns_new(const shl_txn_options *options, const shl_txn_names *names,
                       shl_budget *budget)
{
    shl_txns *txns = shl_alloc_zeroed(budget, sizeof *txns);
    if (!txns)
        return NULL;
    txns->options = *options;
    txns->names = *names;
    txns->budget = budget;
    txns->first_skipped_line = txns->unwritten_txn = txns->unwritten_version = SHL_NONE;
    txns->contested_version = SHL_NONE;
    return txns;
}

void shl_txns_free(shl_txns *txns)
{
    if (!txns)
        return;
    shl_budget *budget = txns->budget;
    shl_txn_free_branches(txns);
    shl_txn_free_values(txns);
    shl_txn_free_graph(txns);
    shl_free(budget, txns->txns, txns->room * (int64_t)sizeof(shl_txn));
    shl_free(budget, txns->mops, txns->mop_room * (int64_t)sizeof(shl_mop));
    shl_free(budget, txns->found, txns->found_room * (int64_t)sizeof(shl_txn_found));
    shl_free(budget, txns->cycles, txns->cycle_room * (int64_t)sizeof(shl_txn_cycle));
    shl_free(budget, txns->steps, txns->step_room * (int64_t)sizeof(shl_txn_step));
    shl_free(budget, txns, sizeof *txns);
}

/* --- micro-operations -------------------------------------------------------------------------*/

/* What reading a transaction came to. */
enum outcome { NO_MEMORY, READ, NOT_A_TRANSACTION, OTHER_MICRO_OPERATIONS };

static int f_of(const shl_txns *txns, const shl_node *node)
{
    if (node->kind != SHL_NODE_KEYWORD && node->kind != SHL_NODE_TEXT)
        return -1;
    const shl_txn_names *names = &txns->names;
    if (node->number == names->read || node->number == names->read_long)
        return SHL_MOP_READ;
    for (size_t i = 0; i < sizeof names->write / sizeof *names->write; i++)
        if (node->number == names->write[i])
            return SHL_MOP_WRITE;
    return -1;
}

/* What a read returned. 1, or 0: no memory, -1: nothing that a read of this object returns. */
static int read_result(shl_txns *txns, const shl_node *nodes, int32_t at, shl_mop *mop)
{
    mop->value = SHL_NONE;
    mop->length = 0;
    if (nodes[at].kind == SHL_NODE_NIL)
        return 1;
    if (txns->options.object == SHL_TXN_REGISTERS) {
        int64_t raw;
        if (!shl_txn_raw(txns, nodes + at, &raw))
            return 0;
        mop->length = 1;
        return (mop->value = shl_txn_version_of(txns, mop->key, raw)) >= 0;
    }
    if (nodes[at].kind != SHL_NODE_LIST && nodes[at].kind != SHL_NODE_SET)
        return -1;
    if (!nodes[at].number)
        return 1;
    mop->length = (int32_t)nodes[at].number;
    mop->value = txns->options.object == SHL_TXN_LISTS
                     ? shl_txn_branch(txns, mop->key, nodes + at + 1, nodes[at].number)
                     : shl_txn_set(txns, mop->key, nodes + at + 1, nodes[at].number,
                                   &mop->length);
    return mop->value >= 0;
}

/* One of [f key value], or [f key]. with_reads: what it says that it read counts. */
static enum outcome read_mop(shl_txns *txns, const shl_node *nodes, int32_t at, int with_reads,
                             int is_nil_known, shl_mop *mop)
{
    if (nodes[at].kind != SHL_NODE_LIST || nodes[at].number < 2)
        return NOT_A_TRANSACTION;
    int f = f_of(txns, nodes + at + 1);
    if (f < 0)
        return OTHER_MICRO_OPERATIONS;
    int32_t key_at = at + 2;
    int32_t value_at = nodes[at].number > 2 ? nodes[key_at].next : SHL_NONE;
    int64_t raw;
    if (!shl_txn_raw(txns, nodes + key_at, &raw))
        return NO_MEMORY;
    *mop = (shl_mop){shl_txn_key(txns, raw), SHL_NONE, SHL_NONE, (uint8_t)f};
    if (mop->key < 0)
        return NO_MEMORY;
    if (f == SHL_MOP_WRITE) {
        if (value_at == SHL_NONE)
            return OTHER_MICRO_OPERATIONS;
        if (!shl_txn_raw(txns, nodes + value_at, &raw))
            return NO_MEMORY;
        mop->value = shl_txn_version_of(txns, mop->key, raw);
        return mop->value < 0 ? NO_MEMORY : READ;
    }
    int is_nil = value_at == SHL_NONE || nodes[value_at].kind == SHL_NODE_NIL;
    if (!with_reads || (is_nil && !is_nil_known))
        return READ;
    if (value_at == SHL_NONE)
        return mop->length = 0, READ;
    int said = read_result(txns, nodes, value_at, mop);
    return said > 0 ? READ : said < 0 ? OTHER_MICRO_OPERATIONS : NO_MEMORY;
}

static int push_mop(shl_txns *txns, const shl_mop *mop)
{
    if (!shl_txn_room(txns->budget, (void **)&txns->mops, &txns->mop_room, txns->mop_count,
                      sizeof(shl_mop)))
        return 0;
    txns->mops[txns->mop_count++] = *mop;
    return 1;
}

/* All of a value, to the end of txns->mops. */
static enum outcome read_mops(shl_txns *txns, const shl_node *nodes, int32_t at, uint8_t type)
{
    if (at < 0 || nodes[at].kind != SHL_NODE_LIST)
        return NOT_A_TRANSACTION;
    int64_t before = txns->mop_count;
    int32_t child = at + 1;
    for (int64_t i = 0; i < nodes[at].number; i++, child = nodes[child].next) {
        shl_mop mop;
        enum outcome outcome = read_mop(txns, nodes, child, type == SHL_OK || type == SHL_INFO,
                                        type == SHL_OK, &mop);
        if (outcome == READ && !push_mop(txns, &mop))
            outcome = NO_MEMORY;
        if (outcome != READ) {
            txns->mop_count = before;
            return outcome;
        }
    }
    return READ;
}

/* --- pairs ------------------------------------------------------------------------------------*/

static int32_t new_txn(shl_txns *txns, int32_t process)
{
    if (!shl_txn_room(txns->budget, (void **)&txns->txns, &txns->room, txns->count,
                      sizeof(shl_txn)))
        return -1;
    txns->txns[txns->count] = (shl_txn){
        .type = SHL_TXN_INFO, .process = process, .call = SHL_NONE, .ret = SHL_NEVER,
        .line = SHL_NONE, .index = SHL_NONE, .time = SHL_NONE,
        .call_line = SHL_NONE, .call_index = SHL_NONE, .call_time = SHL_NONE,
    };
    return (int32_t)txns->count++;
}

static void skip(shl_txns *txns, const shl_entry_node *entry, enum outcome outcome)
{
    if (!txns->skipped++)
        txns->first_skipped_line = entry->line;
    txns->malformed += outcome == OTHER_MICRO_OPERATIONS;
}

/* What its invocation asked for is what is known of it. */
static int as_asked(shl_txns *txns, shl_asker *asker, shl_txn *txn)
{
    txn->mops = txns->mop_count;
    txn->count = asker->count;
    for (int32_t i = 0; i < asker->count; i++)
        if (!push_mop(txns, &asker->asked[i]))
            return 0;
    return 1;
}

/* A transaction that is not there: it has no micro-operations, and failed. */
static void drop(shl_txn *txn)
{
    txn->type = SHL_TXN_FAIL;
    txn->count = 0;
}

static int never_completed(shl_txns *txns, shl_asker *asker)
{
    int32_t open = asker->open;
    asker->open = SHL_NONE;
    return open == SHL_NONE || as_asked(txns, asker, &txns->txns[open]);
}

static int remember(shl_txns *txns, shl_asker *asker, int64_t from)
{
    asker->count = 0;
    for (int64_t i = from; i < txns->mop_count; i++) {
        if (!shl_txn_room(txns->budget, (void **)&asker->asked, &asker->room, asker->count,
                          sizeof(shl_mop)))
            return 0;
        asker->asked[asker->count++] = txns->mops[i];
    }
    txns->mop_count = from;
    return 1;
}

static int invoked(shl_txns *txns, const shl_batch *batch, const shl_entry_node *entry,
                   int32_t process)
{
    shl_asker *asker = &txns->askers[process];
    if (!never_completed(txns, asker))
        return 0;
    int64_t before = txns->mop_count;
    enum outcome outcome = read_mops(txns, batch->nodes, entry->value, entry->type);
    int is_nil = entry->value < 0 || batch->nodes[entry->value].kind == SHL_NODE_NIL;
    if (outcome != READ && !is_nil) {
        if (outcome != NO_MEMORY)
            skip(txns, entry, outcome);
        return outcome != NO_MEMORY;
    }
    if (!remember(txns, asker, before))
        return 0;
    int32_t at = new_txn(txns, process);
    if (at < 0)
        return 0;
    asker->open = at;
    shl_txn *txn = &txns->txns[at];
    txn->call = (int32_t)txns->events;
    txn->line = txn->call_line = entry->line;
    txn->index = txn->call_index = entry->index;
    txn->time = txn->call_time = entry->time;
    txns->has_calls = 1;
    return 1;
}

static int completed(shl_txns *txns, const shl_batch *batch, const shl_entry_node *entry,
                     int32_t process)
{
    shl_asker *asker = &txns->askers[process];
    int64_t before = txns->mop_count;
    enum outcome outcome = read_mops(txns, batch->nodes, entry->value, entry->type);
    if (outcome == NO_MEMORY)
        return 0;
    int is_nil = entry->value < 0 || batch->nodes[entry->value].kind == SHL_NODE_NIL;
    int32_t at = asker->open;
    asker->open = SHL_NONE;
    if (outcome != READ && (at == SHL_NONE || !is_nil || !asker->count)) {
        skip(txns, entry, outcome);
        if (at != SHL_NONE)
            drop(&txns->txns[at]);
        return 1;
    }
    if (at == SHL_NONE && (at = new_txn(txns, process)) < 0)
        return 0;
    shl_txn *txn = &txns->txns[at];
    txn->type = entry->type == SHL_OK     ? SHL_TXN_OK
                : entry->type == SHL_FAIL ? SHL_TXN_FAIL
                                          : SHL_TXN_INFO;
    txn->ret = txn->type == SHL_TXN_INFO ? SHL_NEVER : (int32_t)txns->events;
    txn->line = entry->line;
    txn->index = entry->index;
    txn->time = entry->time;
    txn->mops = before;
    txn->count = (int32_t)(txns->mop_count - before);
    return outcome == READ || as_asked(txns, asker, txn);
}

int32_t shl_txns_feed(shl_txns *txns, const shl_batch *batch)
{
    for (int64_t i = 0; i < batch->count; i++) {
        const shl_entry_node *entry = &batch->entries[i];
        if ((i & 4095) == 0 && shl_check_budget(txns->budget))
            return 0;
        if (entry->process == SHL_NEMESIS || entry->type > SHL_INVOKE)
            continue;
        int32_t process = shl_txn_asker(txns, entry->process);
        if (process < 0)
            return 0;
        int went_on = entry->type == SHL_INVOKE ? invoked(txns, batch, entry, process)
                                                : completed(txns, batch, entry, process);
        if (!went_on)
            return 0;
        txns->events++;
    }
    return 1;
}

/* --- the judgement ----------------------------------------------------------------------------*/

int32_t shl_txns_judge(shl_txns *txns)
{
    for (int64_t i = 0; i < txns->asker_count; i++)
        if (!never_completed(txns, &txns->askers[i]))
            return 0;
    txns->graph.vertices = txns->count;
    if (!shl_txn_find_writers(txns) || !shl_txn_find_contested(txns))
        return 0;
    int32_t judged = txns->options.object == SHL_TXN_LISTS       ? shl_txn_judge_lists(txns)
                     : txns->options.object == SHL_TXN_REGISTERS ? shl_txn_judge_registers(txns)
                                                                 : shl_txn_judge_sets(txns);
    if (!judged || shl_check_budget(txns->budget))
        return 0;
    txns->data_edges = txns->graph.count;
    return shl_txn_order(txns) && shl_txn_rows(txns) && shl_txn_search(txns);
}

void shl_txns_view(const shl_txns *txns, shl_txn_view *view)
{
    *view = (shl_txn_view){
        .txns = txns->count, .mops = txns->mop_count, .versions = txns->version_count,
        .branches = txns->branch_count, .keys = txns->key_count, .edges = txns->data_edges,
        .skipped = txns->skipped, .first_skipped_line = txns->first_skipped_line,
        .malformed = txns->malformed, .unwritten = txns->unwritten,
        .contested = txns->contested, .contested_version = txns->contested_version,
        .contested_keys = txns->contested_keys,
        .unwritten_txn = txns->unwritten_txn, .unwritten_version = txns->unwritten_version,
        .has_calls = txns->has_calls, .searches_stopped = txns->searches_stopped,
        .txn = txns->txns, .mop = txns->mops, .version = txns->versions,
        .branch = txns->branches, .key = txns->keys, .longest = txns->longest,
        .found = txns->found_total, .finding = txns->found, .cycles = txns->cycle_total,
        .cycle = txns->cycles, .step = txns->steps,
    };
    view->order_edges = txns->graph.count - txns->data_edges;
    memcpy(view->contested_key, txns->contested_key, sizeof txns->contested_key);
    for (int64_t t = 0; t < txns->count; t++)
        view->type_count[txns->txns[t].type]++;
    memcpy(view->found_count, txns->found_count, sizeof txns->found_count);
    memcpy(view->cycle_count, txns->cycle_count, sizeof txns->cycle_count);
    memcpy(view->exists_count, txns->exists_count, sizeof txns->exists_count);
}

int64_t shl_txn_process(const shl_txns *txns, int32_t process)
{
    return txns->askers[process].process;
}
