/* Lists: every read shows the order of all appends so far, so that versions have one order, that
 * of the longest read; and what no read saw comes after it. */
#include "internal_txn.h"

#include <string.h>

enum { DIRECT_ENDS = 4 };

/* --- the order of versions --------------------------------------------------------------------*/

/* States: a version that a read ended with, or what a key held at first. */
typedef struct {
    shl_txns *txns;
    int64_t states;
    int64_t *order_starts; /* of each key in `order` */
    int32_t *order;        /* its versions, each once */
    int64_t order_room;
    int64_t *reader_starts; /* of each state in `readers` */
    int32_t *readers;
    int64_t reader_count;
    int64_t *end_starts; /* of each key in `ends`: those that appended what no read saw */
    int32_t *ends, *end_versions;
    int64_t end_count;
} lists;

static int64_t state_of(const lists *of, const shl_mop *read)
{
    if (read->value == SHL_NONE)
        return of->txns->version_count + read->key;
    return of->txns->branches[read->value].version[read->length - 1];
}

static int find_longest(shl_txns *txns)
{
    txns->longest_count = txns->key_count;
    txns->longest = shl_alloc(txns->budget, txns->key_count * (int64_t)sizeof(int32_t));
    if (!txns->longest) {
        txns->longest_count = 0;
        return 0;
    }
    for (int64_t key = 0; key < txns->key_count; key++)
        txns->longest[key] = SHL_NONE;
    for (int64_t i = 0; i < txns->branch_count; i++) {
        int32_t *longest = &txns->longest[txns->branches[i].key];
        if (*longest == SHL_NONE || txns->branches[i].length > txns->branches[*longest].length)
            *longest = (int32_t)i;
    }
    return 1;
}

static int order_versions(lists *of)
{
    shl_txns *txns = of->txns;
    of->order_room = 0;
    for (int64_t key = 0; key < txns->key_count; key++)
        if (txns->longest[key] != SHL_NONE)
            of->order_room += txns->branches[txns->longest[key]].length;
    of->order_starts = shl_alloc(txns->budget, (txns->key_count + 1) * 8);
    of->order = shl_alloc(txns->budget, of->order_room * 4);
    if (!of->order_starts || !of->order)
        return 0;
    int64_t count = 0;
    for (int64_t key = 0; key < txns->key_count; key++) {
        of->order_starts[key] = count;
        if (txns->longest[key] == SHL_NONE)
            continue;
        const shl_txn_list *branch = &txns->branches[txns->longest[key]];
        for (int32_t i = 0; i < branch->length; i++) {
            shl_version *version = &txns->versions[branch->version[i]];
            if (version->at != SHL_NONE)
                continue;
            version->at = (int32_t)(count - of->order_starts[key]);
            of->order[count++] = branch->version[i];
        }
    }
    of->order_starts[txns->key_count] = count;
    return 1;
}

/* --- readers and unseen appends ---------------------------------------------------------------*/

static int is_known_read(const shl_txn *txn, const shl_mop *mop)
{
    return mop->f == SHL_MOP_READ && mop->length != SHL_NONE && shl_txn_may_have_happened(txn);
}

/* Calls what it is given for each read whose result counts. */
#define FOR_EACH_MOP(txns, t, i)                                                                   \
    for (int64_t t = 0; t < (txns)->count; t++)                                                    \
        for (int64_t i = (txns)->txns[t].mops;                                                     \
             i < (txns)->txns[t].mops + (txns)->txns[t].count; i++)

/* starts[x + 1] counts of x, as starts of rows: starts[x] is where x begins, for a filler that
 * moves starts[x + 1] back to there. */
static void sum_up(int64_t *starts, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        starts[i + 1] += starts[i];
}

static int find_readers(lists *of)
{
    shl_txns *txns = of->txns;
    of->states = txns->version_count + txns->key_count;
    of->reader_starts = shl_alloc_zeroed(txns->budget, (of->states + 1) * 8);
    if (!of->reader_starts)
        return 0;
    FOR_EACH_MOP(txns, t, i) {
        if (is_known_read(&txns->txns[t], &txns->mops[i]))
            of->reader_starts[state_of(of, &txns->mops[i]) + 1]++;
    }
    sum_up(of->reader_starts, of->states);
    of->reader_count = of->reader_starts[of->states];
    of->readers = shl_alloc(txns->budget, of->reader_count * 4);
    int64_t *next = shl_alloc(txns->budget, of->states * 8);
    if (of->readers && next) {
        memcpy(next, of->reader_starts, (size_t)of->states * 8);
        FOR_EACH_MOP(txns, t, i) {
            if (is_known_read(&txns->txns[t], &txns->mops[i]))
                of->readers[next[state_of(of, &txns->mops[i])]++] = (int32_t)t;
        }
    }
    int done = of->readers && next;
    shl_free(txns->budget, next, of->states * 8);
    return done;
}

static int is_unseen(const shl_txns *txns, const shl_txn *txn, const shl_mop *mop)
{
    return mop->f == SHL_MOP_WRITE && shl_txn_may_have_happened(txn) &&
           txns->versions[mop->value].at == SHL_NONE;
}

/* Each transaction once for each key, in the order of transactions. */
static int find_ends(lists *of)
{
    shl_txns *txns = of->txns;
    of->end_starts = shl_alloc_zeroed(txns->budget, (txns->key_count + 1) * 8);
    int64_t *next = shl_alloc(txns->budget, txns->key_count * 8);
    if (!of->end_starts || !next) {
        shl_free(txns->budget, next, txns->key_count * 8);
        return 0;
    }
    FOR_EACH_MOP(txns, t, i) {
        if (is_unseen(txns, &txns->txns[t], &txns->mops[i]))
            of->end_starts[txns->mops[i].key + 1]++;
    }
    sum_up(of->end_starts, txns->key_count);
    of->end_count = of->end_starts[txns->key_count];
    of->ends = shl_alloc(txns->budget, of->end_count * 4);
    of->end_versions = shl_alloc(txns->budget, of->end_count * 4);
    memcpy(next, of->end_starts, (size_t)txns->key_count * 8);
    int done = of->ends && of->end_versions;
    for (int64_t at = 0; done && at < of->end_count; at++)
        of->ends[at] = SHL_NONE;
    FOR_EACH_MOP(txns, t, i) {
        const shl_mop *mop = &txns->mops[i];
        if (!done || !is_unseen(txns, &txns->txns[t], mop))
            continue;
        if (next[mop->key] > of->end_starts[mop->key] && of->ends[next[mop->key] - 1] == t)
            continue;
        of->ends[next[mop->key]] = (int32_t)t;
        of->end_versions[next[mop->key]++] = mop->value;
    }
    shl_free(txns->budget, next, txns->key_count * 8);
    return done;
}

static void close_lists(lists *of)
{
    shl_budget *budget = of->txns->budget;
    int64_t keys = of->txns->key_count;
    shl_free(budget, of->order_starts, (keys + 1) * 8);
    shl_free(budget, of->order, of->order_room * 4);
    shl_free(budget, of->reader_starts, (of->states + 1) * 8);
    shl_free(budget, of->readers, of->reader_count * 4);
    shl_free(budget, of->end_starts, (keys + 1) * 8);
    shl_free(budget, of->ends, of->end_count * 4);
    shl_free(budget, of->end_versions, of->end_count * 4);
}

/* --- edges ------------------------------------------------------------------------------------*/

/* Who certainly wrote it, if it happened at all; SHL_NONE: none did, or several may have. */
static int32_t known_writer(const shl_txns *txns, int32_t version)
{
    return txns->versions[version].contested ? SHL_NONE : txns->versions[version].writer;
}

static int edges_from_readers(lists *of, int64_t state, int32_t writer, int32_t version)
{
    for (int64_t i = of->reader_starts[state]; i < of->reader_starts[state + 1]; i++) {
        int32_t reader = of->readers[i];
        if (reader == writer || (i > of->reader_starts[state] && of->readers[i - 1] == reader))
            continue;
        if (!shl_txn_edge(of->txns, reader, writer, SHL_EDGE_RW, version))
            return 0;
    }
    return 1;
}

/* All that appended what no read saw come after the last that was seen, and after its readers. */
static int edges_to_ends(lists *of, int32_t key, int64_t seen_from, int32_t last)
{
    shl_txns *txns = of->txns;
    const int32_t *ends = of->ends + of->end_starts[key];
    const int32_t *versions = of->end_versions + of->end_starts[key];
    int32_t count = 0;
    while (of->end_starts[key] + count < of->end_starts[key + 1] && ends[count] != SHL_NONE)
        count++;
    if (!count)
        return 1;
    for (int32_t i = 0; i < count; i++)
        if (last != SHL_NONE && last != ends[i] &&
            !shl_txn_edge(txns, last, ends[i], SHL_EDGE_WW, versions[i]))
            return 0;
    int32_t tree = SHL_NONE;
    int64_t states = of->order_starts[key + 1] - seen_from;
    for (int64_t s = last == SHL_NONE ? -1 : 0; s < states; s++) {
        int64_t state = s < 0 ? txns->version_count + key : of->order[seen_from + s];
        if (count <= DIRECT_ENDS) {
            for (int32_t i = 0; i < count; i++)
                if (!edges_from_readers(of, state, ends[i], versions[i]))
                    return 0;
            continue;
        }
        for (int64_t i = of->reader_starts[state]; i < of->reader_starts[state + 1]; i++) {
            if (tree == SHL_NONE && (tree = shl_txn_tree_down(txns, count, ends, versions)) < 0)
                return 0;
            if (!shl_txn_to_all_but(txns, of->readers[i], SHL_EDGE_RW, tree, count, ends))
                return 0;
        }
    }
    return 1;
}

static int edges_of_key(lists *of, int32_t key)
{
    shl_txns *txns = of->txns;
    int32_t last = SHL_NONE; /* the last known writer; seen_from: the place of what it wrote */
    int64_t seen_from = of->order_starts[key];
    for (int64_t p = of->order_starts[key]; p < of->order_starts[key + 1]; p++) {
        int32_t version = of->order[p], writer = known_writer(txns, version);
        if (writer == SHL_NONE)
            continue;
        if (last != SHL_NONE && last != writer &&
            !shl_txn_edge(txns, last, writer, SHL_EDGE_WW, version))
            return 0;
        if (last == SHL_NONE &&
            !edges_from_readers(of, txns->version_count + key, writer, version))
            return 0;
        for (int64_t q = seen_from; q < p; q++)
            if (!edges_from_readers(of, of->order[q], writer, version))
                return 0;
        last = writer;
        seen_from = p;
    }
    return edges_to_ends(of, key, seen_from, last);
}

static int note_contested(shl_txns *txns, int32_t reader, int64_t mop, int32_t version)
{
    if (!txns->versions[version].contested)
        return 1;
    shl_txn_found found = shl_txn_found_at(SHL_FOUND_CONTESTED, reader, mop);
    found.key = txns->versions[version].key;
    found.version = version;
    found.other = txns->versions[version].writer;
    return shl_txn_note(txns, found);
}

/* The last append that it saw, of those whose writer is known. */
static int edge_to_reader(lists *of, int32_t reader, int64_t i)
{
    shl_txns *txns = of->txns;
    const shl_mop *read = &txns->mops[i];
    if (read->value == SHL_NONE)
        return 1;
    const shl_txn_list *branch = &txns->branches[read->value];
    for (int32_t p = read->length - 1; p >= 0; p--) {
        int32_t version = branch->version[p], writer = known_writer(txns, version);
        if (!note_contested(txns, reader, i, version))
            return 0;
        if (writer == SHL_NONE)
            continue;
        return writer == reader || shl_txn_edge(txns, writer, reader, SHL_EDGE_WR, version);
    }
    return 1;
}

static int draw_edges(lists *of)
{
    shl_txns *txns = of->txns;
    for (int32_t key = 0; key < txns->key_count; key++)
        if (!edges_of_key(of, key))
            return 0;
    FOR_EACH_MOP(txns, t, i) {
        if (is_known_read(&txns->txns[t], &txns->mops[i]) && !edge_to_reader(of, (int32_t)t, i))
            return 0;
    }
    return !shl_check_budget(txns->budget);
}

/* --- what needs no cycle ----------------------------------------------------------------------*/

/* Per branch: the first place that holds what was there before, of none, or of one that failed. */
typedef struct {
    int32_t garbage, aborted;
} bad_places;

static int find_bad_places(shl_txns *txns, bad_places *bad)
{
    int32_t *seen = shl_alloc(txns->budget, txns->version_count * 4);
    if (!seen)
        return 0;
    for (int64_t v = 0; v < txns->version_count; v++)
        seen[v] = SHL_NONE;
    for (int64_t b = 0; b < txns->branch_count; b++) {
        shl_txn_list *branch = &txns->branches[b];
        bad[b] = (bad_places){SHL_NEVER, SHL_NEVER};
        branch->duplicate = SHL_NEVER;
        for (int32_t p = branch->length - 1; p >= 0; p--) {
            const shl_version *version = &txns->versions[branch->version[p]];
            if (version->writer == SHL_NONE && version->failed == SHL_NONE)
                bad[b].garbage = p;
            if (version->writer == SHL_NONE && version->failed != SHL_NONE)
                bad[b].aborted = p;
        }
        for (int32_t p = 0; p < branch->length && branch->duplicate == SHL_NEVER; p++) {
            if (seen[branch->version[p]] == b)
                branch->duplicate = p;
            seen[branch->version[p]] = (int32_t)b;
        }
    }
    shl_free(txns->budget, seen, txns->version_count * 4);
    return 1;
}

static int judge_read(shl_txns *txns, const bad_places *bad, int32_t t, int64_t i)
{
    const shl_mop *read = &txns->mops[i];
    if (read->value == SHL_NONE)
        return 1;
    shl_txn_list *branch = &txns->branches[read->value];
    if (branch->a_read == SHL_NONE || read->length == branch->length)
        branch->a_read = t;
    if (read->length > branch->duplicate) {
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_DUPLICATE_ELEMENTS, t, i);
        found.key = branch->key;
        found.version = branch->version[branch->duplicate];
        if (!shl_txn_note(txns, found))
            return 0;
    }
    if (txns->txns[t].type != SHL_TXN_OK)
        return 1;
    int32_t garbage = bad[read->value].garbage, aborted = bad[read->value].aborted;
    if (read->length > garbage && !shl_txn_judge_version(txns, t, i, branch->version[garbage], 0))
        return 0;
    if (read->length > aborted && !shl_txn_judge_version(txns, t, i, branch->version[aborted], 0))
        return 0;
    int32_t last = branch->version[read->length - 1];
    return txns->versions[last].writer == SHL_NONE || shl_txn_judge_version(txns, t, i, last, 1);
}

static int judge_reads(lists *of)
{
    shl_txns *txns = of->txns;
    bad_places *bad = shl_alloc(txns->budget, txns->branch_count * (int64_t)sizeof *bad);
    int done = bad && find_bad_places(txns, bad);
    FOR_EACH_MOP(txns, t, i) {
        if (done && is_known_read(&txns->txns[t], &txns->mops[i]))
            done = judge_read(txns, bad, (int32_t)t, i);
    }
    shl_free(txns->budget, bad, txns->branch_count * (int64_t)sizeof *bad);
    return done;
}

/* One finding a key: its order, and the longest read that is no beginning of it. */
static int judge_orders(shl_txns *txns)
{
    for (int64_t key = 0; key < txns->key_count; key++) {
        int32_t longest = txns->longest[key], other = SHL_NONE;
        if (longest == SHL_NONE)
            continue;
        for (int32_t b = txns->key_branches[key].first; b != SHL_NONE; b = txns->branches[b].next) {
            const shl_txn_list *branch = &txns->branches[b];
            if (b == longest
                || shl_txn_branch_begins(&txns->branches[longest], branch->raw, branch->length))
                continue;
            if (other == SHL_NONE || branch->length > txns->branches[other].length)
                other = b;
        }
        if (other == SHL_NONE)
            continue;
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_INCOMPATIBLE_ORDER,
                                               txns->branches[longest].a_read, SHL_NONE);
        found.other = txns->branches[other].a_read;
        found.key = (int32_t)key;
        found.branch = longest;
        found.other_branch = other;
        if (!shl_txn_note(txns, found))
            return 0;
    }
    return 1;
}

static int judge_dirty_updates(lists *of)
{
    shl_txns *txns = of->txns;
    for (int32_t key = 0; key < txns->key_count; key++) {
        int32_t aborted = SHL_NONE; /* the version */
        for (int64_t p = of->order_starts[key]; p < of->order_starts[key + 1]; p++) {
            const shl_version *version = &txns->versions[of->order[p]];
            if (version->writer == SHL_NONE) {
                if (version->failed != SHL_NONE && aborted == SHL_NONE)
                    aborted = of->order[p];
                continue;
            }
            if (version->contested || txns->txns[version->writer].type != SHL_TXN_OK)
                continue;
            if (aborted != SHL_NONE) {
                shl_txn_found found =
                    shl_txn_found_at(SHL_FOUND_DIRTY_UPDATE, version->writer, SHL_NONE);
                found.other = txns->versions[aborted].failed;
                found.key = key;
                found.version = aborted;
                found.other_version = of->order[p];
                if (!shl_txn_note(txns, found))
                    return 0;
            }
            aborted = SHL_NONE;
        }
    }
    return 1;
}

/* --- lost updates -----------------------------------------------------------------------------*/

/* A read of a key, and then a first write of it: the state that was read; else SHL_NONE. */
static int64_t updated_state(const lists *of, int64_t *first, int64_t t, int64_t i)
{
    const shl_txns *txns = of->txns;
    const shl_mop *mop = &txns->mops[i];
    int64_t before = first[mop->key], from = txns->txns[t].mops;
    int is_first = before < from || before > i;
    if (is_first) {
        first[mop->key] = i;
        return SHL_NONE;
    }
    const shl_mop *read = &txns->mops[before];
    if (mop->f == SHL_MOP_READ || read->f != SHL_MOP_READ || read->length == SHL_NONE)
        return SHL_NONE;
    for (int64_t j = before + 1; j < i; j++)
        if (txns->mops[j].key == mop->key && txns->mops[j].f == SHL_MOP_WRITE)
            return SHL_NONE;
    return state_of(of, read);
}

static int judge_lost_updates(lists *of)
{
    shl_txns *txns = of->txns;
    int32_t *updater = shl_alloc(txns->budget, of->states * 4);
    int64_t *first = shl_alloc(txns->budget, txns->key_count * 8);
    int done = updater && first;
    for (int64_t s = 0; done && s < of->states; s++)
        updater[s] = SHL_NONE;
    for (int64_t key = 0; done && key < txns->key_count; key++)
        first[key] = SHL_NONE;
    FOR_EACH_MOP(txns, t, i) {
        if (!done || txns->txns[t].type != SHL_TXN_OK)
            continue;
        int64_t state = updated_state(of, first, t, i);
        if (state == SHL_NONE)
            continue;
        if (updater[state] == SHL_NONE) {
            updater[state] = (int32_t)t;
            continue;
        }
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_LOST_UPDATE, (int32_t)t, i);
        found.other = updater[state];
        found.key = txns->mops[i].key;
        found.version = state < txns->version_count ? (int32_t)state : SHL_NONE;
        done = shl_txn_note(txns, found);
    }
    shl_free(txns->budget, updater, of->states * 4);
    shl_free(txns->budget, first, txns->key_count * 8);
    return done;
}

int32_t shl_txn_judge_lists(shl_txns *txns)
{
    lists of = {.txns = txns};
    int32_t done = find_longest(txns) && order_versions(&of) && find_readers(&of) &&
                   find_ends(&of) && judge_reads(&of) && judge_orders(txns) &&
                   judge_dirty_updates(&of) && shl_txn_judge_lists_inside(txns) &&
                   judge_lost_updates(&of) && draw_edges(&of);
    close_lists(&of);
    return done;
}
