/* Registers: a read shows one version, not those before it. So only part of the order of a key's
 * versions is known: nil comes before all; and if it is assumed so, what a transaction read comes
 * before what it wrote (wfr), and what a process saw, or what was seen in time, comes in order.
 * An assumption that bends the order of a key into a circle is an anomaly (cyclic versions), and is
 * not used for that key.
 *
 * States are versions, and for each key the one that it had at first. */
#include "internal_txn.h"

#include <string.h>

enum { DIRECT_ENDS = 4 };

/* --- touches ----------------------------------------------------------------------------------*/

static int32_t state_of(const shl_registers *of, const shl_mop *mop)
{
    if (mop->value == SHL_NONE || of->initial[mop->key] == mop->value)
        return (int32_t)(of->txns->version_count + mop->key);
    return mop->value;
}

static int is_unwritten(const shl_txns *txns, const shl_mop *mop)
{
    return mop->value != SHL_NONE && txns->versions[mop->value].writer == SHL_NONE &&
           txns->versions[mop->value].failed == SHL_NONE;
}

static int is_known(const shl_registers *of, const shl_txn *txn, const shl_mop *mop)
{
    if (mop->f == SHL_MOP_WRITE)
        return 1;
    return mop->length != SHL_NONE && txn->type == SHL_TXN_OK &&
           !(of->txns->options.unwritten_ignored && is_unwritten(of->txns, mop));
}

/* at: of each key, the place of this transaction's touch, if it is not before `from`. */
static int touch_keys(shl_registers *of, int32_t t, int64_t *at)
{
    shl_txns *txns = of->txns;
    const shl_txn *txn = &txns->txns[t];
    int64_t from = of->touch_count;
    for (int64_t i = txn->mops; i < txn->mops + txn->count; i++) {
        const shl_mop *mop = &txns->mops[i];
        if (!is_known(of, txn, mop))
            continue;
        if (at[mop->key] < from) {
            if (!shl_txn_room(txns->budget, (void **)&of->touches, &of->touch_room,
                              of->touch_count, sizeof(shl_touch)))
                return 0;
            at[mop->key] = of->touch_count;
            of->touches[of->touch_count++] = (shl_touch){t, mop->key, SHL_NONE, SHL_NONE};
            if (mop->f == SHL_MOP_READ)
                of->touches[at[mop->key]].read = state_of(of, mop);
        }
        if (mop->f == SHL_MOP_WRITE)
            of->touches[at[mop->key]].written = mop->value;
    }
    return 1;
}

static int sort_touches(shl_registers *of)
{
    shl_txns *txns = of->txns;
    of->key_starts = shl_alloc_zeroed(txns->budget, (txns->key_count + 1) * 8);
    shl_touch *sorted = shl_alloc(txns->budget, of->touch_count * (int64_t)sizeof(shl_touch));
    int64_t *next = shl_alloc(txns->budget, txns->key_count * 8);
    int done = of->key_starts && sorted && next;
    if (done) {
        for (int64_t i = 0; i < of->touch_count; i++)
            of->key_starts[of->touches[i].key + 1]++;
        for (int64_t key = 0; key < txns->key_count; key++)
            of->key_starts[key + 1] += of->key_starts[key];
        memcpy(next, of->key_starts, (size_t)txns->key_count * 8);
        for (int64_t i = 0; i < of->touch_count; i++)
            sorted[next[of->touches[i].key]++] = of->touches[i];
        shl_free(txns->budget, of->touches, of->touch_room * (int64_t)sizeof(shl_touch));
        of->touches = sorted;
        of->touch_room = of->touch_count;
        sorted = NULL;
    }
    shl_free(txns->budget, sorted, of->touch_count * (int64_t)sizeof(shl_touch));
    shl_free(txns->budget, next, txns->key_count * 8);
    return done;
}

static int find_touches(shl_registers *of)
{
    shl_txns *txns = of->txns;
    int64_t *at = shl_alloc(txns->budget, txns->key_count * 8);
    int done = at != NULL;
    for (int64_t key = 0; done && key < txns->key_count; key++)
        at[key] = SHL_NONE;
    for (int64_t t = 0; done && t < txns->count; t++)
        if (shl_txn_may_have_happened(&txns->txns[t]))
            done = touch_keys(of, (int32_t)t, at);
    shl_free(txns->budget, at, txns->key_count * 8);
    return done && sort_touches(of);
}

/* --- values that none wrote -------------------------------------------------------------------*/

/* What a key held at first may have been another value than nil: one that none wrote, if no read
 * returned nil, and no other such value was read. Any other is garbage. */
typedef struct {
    int32_t first; /* such a value, or SHL_NONE */
    uint8_t several, nil;
} unwritten;

static void gather_unwritten(shl_txns *txns, unwritten *of_key)
{
    for (int64_t t = 0; t < txns->count; t++) {
        const shl_txn *txn = &txns->txns[t];
        for (int64_t i = txn->mops; txn->type == SHL_TXN_OK && i < txn->mops + txn->count; i++) {
            const shl_mop *mop = &txns->mops[i];
            unwritten *here = &of_key[mop->key];
            if (mop->f != SHL_MOP_READ || mop->length == SHL_NONE)
                continue;
            here->nil |= mop->value == SHL_NONE;
            if (!is_unwritten(txns, mop))
                continue;
            here->several |= here->first != SHL_NONE && here->first != mop->value;
            here->first = mop->value;
            if (!txns->unwritten++) {
                txns->unwritten_txn = (int32_t)t;
                txns->unwritten_version = mop->value;
            }
        }
    }
}

static int judge_read(shl_txns *txns, const unwritten *of_key, int32_t t, int64_t i)
{
    const shl_mop *mop = &txns->mops[i];
    if (mop->f != SHL_MOP_READ || mop->value == SHL_NONE)
        return 1;
    const unwritten *here = &of_key[mop->key];
    if (is_unwritten(txns, mop) && !here->several && !here->nil)
        return 1;
    if (txns->versions[mop->value].contested) {
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_CONTESTED, t, i);
        found.key = mop->key;
        found.version = mop->value;
        found.other = txns->versions[mop->value].writer;
        return shl_txn_note(txns, found);
    }
    return shl_txn_judge_version(txns, t, i, mop->value, 1);
}

static int judge_reads(shl_registers *of)
{
    shl_txns *txns = of->txns;
    int64_t bytes = txns->key_count * (int64_t)sizeof(unwritten);
    unwritten *of_key = shl_alloc(txns->budget, bytes);
    of->initial = shl_alloc(txns->budget, txns->key_count * 4);
    int done = of_key && of->initial;
    for (int64_t key = 0; done && key < txns->key_count; key++)
        of_key[key] = (unwritten){SHL_NONE, 0, 0};
    if (done)
        gather_unwritten(txns, of_key);
    for (int64_t key = 0; done && key < txns->key_count; key++) {
        const unwritten *here = &of_key[key];
        int is_initial = txns->options.unwritten_initial && !here->several && !here->nil;
        of->initial[key] = is_initial ? here->first : SHL_NEVER;
    }
    for (int64_t t = 0; done && t < txns->count; t++) {
        const shl_txn *txn = &txns->txns[t];
        for (int64_t i = txn->mops;
             done && txn->type == SHL_TXN_OK && i < txn->mops + txn->count; i++)
            done = judge_read(txns, of_key, (int32_t)t, i);
    }
    shl_free(txns->budget, of_key, bytes);
    return done;
}

/* --- within a transaction ---------------------------------------------------------------------*/

static int judge_within(shl_txns *txns, int64_t *last, int32_t t)
{
    const shl_txn *txn = &txns->txns[t];
    for (int64_t i = txn->mops; i < txn->mops + txn->count; i++) {
        const shl_mop *mop = &txns->mops[i];
        int64_t before = last[mop->key];
        int is_known = mop->f == SHL_MOP_WRITE || mop->length != SHL_NONE;
        if (is_known)
            last[mop->key] = i;
        if (mop->f == SHL_MOP_WRITE || !is_known || before < txn->mops || before >= i)
            continue;
        if (txns->mops[before].value == mop->value)
            continue;
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_INTERNAL, t, i);
        found.other = (int32_t)before;
        found.key = mop->key;
        return shl_txn_note(txns, found);
    }
    return 1;
}

static int judge_inside(shl_txns *txns)
{
    int64_t *last = shl_alloc(txns->budget, txns->key_count * 8);
    int done = last != NULL;
    for (int64_t key = 0; done && key < txns->key_count; key++)
        last[key] = SHL_NONE;
    for (int64_t t = 0; done && t < txns->count; t++)
        if (txns->txns[t].type == SHL_TXN_OK)
            done = judge_within(txns, last, (int32_t)t);
    shl_free(txns->budget, last, txns->key_count * 8);
    return done;
}

/* Two that read one state of a key, and wrote it; and those that read what they were yet to
 * write. */
static int judge_updates(shl_registers *of)
{
    shl_txns *txns = of->txns;
    int32_t *updater = shl_alloc(txns->budget, of->states * 4);
    int done = updater != NULL;
    for (int64_t s = 0; done && s < of->states; s++)
        updater[s] = SHL_NONE;
    for (int64_t i = 0; done && i < of->touch_count; i++) {
        const shl_touch *here = &of->touches[i];
        if (here->read == SHL_NONE || here->written == SHL_NONE ||
            txns->txns[here->txn].type != SHL_TXN_OK)
            continue;
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_LOST_UPDATE, here->txn, SHL_NONE);
        found.key = here->key;
        found.other = updater[here->read];
        found.version = here->read < txns->version_count ? here->read : SHL_NONE;
        if (found.version != SHL_NONE && txns->versions[found.version].writer == here->txn &&
            !txns->versions[found.version].contested) {
            found.kind = SHL_FOUND_FUTURE_READ;
            found.other = SHL_NONE;
            done = shl_txn_note(txns, found);
        } else if (found.other != SHL_NONE) {
            done = shl_txn_note(txns, found);
        } else {
            updater[here->read] = here->txn;
        }
    }
    shl_free(txns->budget, updater, of->states * 4);
    return done;
}

/* --- edges ------------------------------------------------------------------------------------*/

/* Who wrote it, as the last of what it wrote to this key; SHL_NONE: none did, or not only one. */
static int32_t known_writer(const shl_txns *txns, int32_t state)
{
    if (state >= txns->version_count)
        return SHL_NONE;
    const shl_version *version = &txns->versions[state];
    return version->contested || version->intermediate ? SHL_NONE : version->writer;
}

static int find_readers(shl_registers *of)
{
    shl_budget *budget = of->txns->budget;
    of->reader_starts = shl_alloc_zeroed(budget, (of->states + 1) * 8);
    of->readers = shl_alloc(budget, of->touch_count * 4);
    int64_t *next = shl_alloc(budget, of->states * 8);
    int done = of->reader_starts && of->readers && next;
    if (done) {
        for (int64_t i = 0; i < of->touch_count; i++)
            if (of->touches[i].read != SHL_NONE)
                of->reader_starts[of->touches[i].read + 1]++;
        for (int64_t s = 0; s < of->states; s++)
            of->reader_starts[s + 1] += of->reader_starts[s];
        memcpy(next, of->reader_starts, (size_t)of->states * 8);
        for (int64_t i = 0; i < of->touch_count; i++)
            if (of->touches[i].read != SHL_NONE)
                of->readers[next[of->touches[i].read]++] = of->touches[i].txn;
    }
    shl_free(budget, next, of->states * 8);
    return done;
}

static int edges_of_order(shl_registers *of, const shl_order *here)
{
    shl_txns *txns = of->txns;
    int32_t writer = known_writer(txns, here->to), before = known_writer(txns, here->from);
    if (writer == SHL_NONE)
        return 1;
    if (before != SHL_NONE && before != writer &&
        !shl_txn_edge(txns, before, writer, SHL_EDGE_WW, here->to))
        return 0;
    for (int64_t i = of->reader_starts[here->from]; i < of->reader_starts[here->from + 1]; i++)
        if (of->readers[i] != writer &&
            !shl_txn_edge(txns, of->readers[i], writer, SHL_EDGE_RW, here->to))
            return 0;
    return 1;
}

/* Who read what a key held at first comes before all that wrote it. */
static int edges_from_initial(shl_registers *of, int32_t key, int32_t *ends, int32_t *versions)
{
    shl_txns *txns = of->txns;
    int64_t state = txns->version_count + key;
    if (of->reader_starts[state] == of->reader_starts[state + 1])
        return 1;
    int32_t count = 0;
    for (int64_t i = of->key_starts[key]; i < of->key_starts[key + 1]; i++) {
        const shl_touch *here = &of->touches[i];
        if (here->written == SHL_NONE)
            continue;
        ends[count] = here->txn;
        versions[count++] = here->written;
    }
    int32_t tree = SHL_NONE;
    if (count > DIRECT_ENDS && (tree = shl_txn_tree_down(txns, count, ends, versions)) < 0)
        return 0;
    for (int64_t i = of->reader_starts[state]; i < of->reader_starts[state + 1]; i++) {
        int32_t reader = of->readers[i];
        if (tree != SHL_NONE &&
            !shl_txn_to_all_but(txns, reader, SHL_EDGE_RW, tree, count, ends))
            return 0;
        for (int32_t j = 0; tree == SHL_NONE && j < count; j++)
            if (ends[j] != reader &&
                !shl_txn_edge(txns, reader, ends[j], SHL_EDGE_RW, versions[j]))
                return 0;
    }
    return 1;
}

static int draw_edges(shl_registers *of)
{
    shl_txns *txns = of->txns;
    int32_t *ends = shl_alloc(txns->budget, of->touch_count * 4);
    int32_t *versions = shl_alloc(txns->budget, of->touch_count * 4);
    int done = ends && versions;
    for (int64_t i = 0; done && i < of->touch_count; i++) {
        int32_t read = of->touches[i].read, reader = of->touches[i].txn;
        int32_t writer = read == SHL_NONE ? SHL_NONE : known_writer(txns, read);
        if (writer != SHL_NONE && writer != reader)
            done = shl_txn_edge(txns, writer, reader, SHL_EDGE_WR, read);
    }
    for (int32_t key = 0; done && key < txns->key_count; key++)
        done = edges_from_initial(of, key, ends, versions);
    for (int64_t i = 0; done && i < of->order_count; i++)
        done = edges_of_order(of, &of->orders[i]);
    shl_free(txns->budget, ends, of->touch_count * 4);
    shl_free(txns->budget, versions, of->touch_count * 4);
    return done;
}

static void close_registers(shl_registers *of)
{
    shl_budget *budget = of->txns->budget;
    shl_free(budget, of->touches, of->touch_room * (int64_t)sizeof(shl_touch));
    shl_free(budget, of->key_starts, (of->txns->key_count + 1) * 8);
    shl_free(budget, of->initial, of->txns->key_count * 4);
    shl_free(budget, of->orders, of->order_room * (int64_t)sizeof(shl_order));
    shl_free(budget, of->reader_starts, (of->states + 1) * 8);
    shl_free(budget, of->readers, of->touch_count * 4);
}

int32_t shl_txn_judge_registers(shl_txns *txns)
{
    shl_registers of = {.txns = txns, .states = txns->version_count + txns->key_count};
    int32_t done = judge_reads(&of) && find_touches(&of) && judge_inside(txns) &&
                   judge_updates(&of) && shl_txn_find_orders(&of) && find_readers(&of) &&
                   draw_edges(&of);
    close_registers(&of);
    return done;
}
