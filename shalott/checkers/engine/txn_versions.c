/* The order of a register's versions, from what is assumed of it, source by source. */
#include "internal_txn.h"

#include <stdlib.h>
#include <string.h>

enum { WFR = 1, SEQUENTIAL = 2, LINEARIZABLE = 4 };

/* --- the order of versions --------------------------------------------------------------------*/

static int push_order(shl_registers *of, int32_t from, int32_t to)
{
    if (from == to)
        return 1;
    if (!shl_txn_room(of->txns->budget, (void **)&of->orders, &of->order_room, of->order_count,
                      sizeof(shl_order)))
        return 0;
    of->orders[of->order_count++] = (shl_order){from, to};
    return 1;
}

/* What a transaction met first, and last; SHL_NONE: a crashed one's, which is not known. */
static int32_t first_state(const shl_touch *here)
{
    return here->read != SHL_NONE ? here->read : here->written;
}

static int32_t last_state(const shl_touch *here)
{
    return here->written != SHL_NONE ? here->written : here->read;
}

/* What overwrote the state that a key had at first is the first of all its versions. */
static int order_after_first(shl_registers *of, const shl_touch *first)
{
    for (int64_t i = of->key_starts[first->key]; i < of->key_starts[first->key + 1]; i++)
        if (of->touches[i].written != SHL_NONE &&
            !push_order(of, first->written, of->touches[i].written))
            return 0;
    return 1;
}

static int order_by_reads(shl_registers *of)
{
    for (int64_t i = 0; i < of->touch_count; i++) {
        const shl_touch *here = &of->touches[i];
        if (here->read == SHL_NONE || here->written == SHL_NONE)
            continue;
        if (here->read < of->txns->version_count ? !push_order(of, here->read, here->written)
                                                 : of->txns->options.no_lost_updates &&
                                                       !order_after_first(of, here))
            return 0;
    }
    return 1;
}

static int order_by_processes(shl_registers *of)
{
    shl_txns *txns = of->txns;
    int64_t bytes = txns->asker_count * 8;
    int64_t *last = shl_alloc(txns->budget, bytes); /* of each process: its last touch */
    int done = last != NULL;
    for (int64_t p = 0; done && p < txns->asker_count; p++)
        last[p] = SHL_NONE;
    for (int64_t i = 0; done && i < of->touch_count; i++) {
        const shl_touch *here = &of->touches[i];
        const shl_txn *txn = &txns->txns[here->txn];
        int64_t before = last[txn->process];
        if (before != SHL_NONE && of->touches[before].key == here->key)
            done = push_order(of, last_state(&of->touches[before]), first_state(here));
        if (txn->type == SHL_TXN_OK)
            last[txn->process] = i;
    }
    shl_free(txns->budget, last, bytes);
    return done;
}

typedef struct {
    int32_t event, is_return;
    int64_t touch;
} moment;

static int by_event(const void *one, const void *other)
{
    int32_t a = ((const moment *)one)->event, b = ((const moment *)other)->event;
    return (a > b) - (a < b);
}

/* An edge from each that returned to each that was called later, but for those that others imply:
 * `open` holds those that returned, and that no later return covers. */
static int order_key_by_time(shl_registers *of, const moment *moments, int64_t count, int64_t *open)
{
    const shl_txn *txns = of->txns->txns;
    int64_t opened = 0;
    for (int64_t m = 0; m < count; m++) {
        const shl_touch *here = &of->touches[moments[m].touch];
        if (!moments[m].is_return) {
            for (int64_t i = 0; i < opened; i++)
                if (!push_order(of, last_state(&of->touches[open[i]]), first_state(here)))
                    return 0;
            continue;
        }
        int64_t kept = 0;
        for (int64_t i = 0; i < opened; i++)
            if (txns[of->touches[open[i]].txn].ret > txns[here->txn].call)
                open[kept++] = open[i];
        opened = kept;
        open[opened++] = moments[m].touch;
    }
    return 1;
}

static int order_by_time(shl_registers *of)
{
    shl_txns *txns = of->txns;
    int64_t most = 0;
    for (int64_t key = 0; key < txns->key_count; key++)
        if (of->key_starts[key + 1] - of->key_starts[key] > most)
            most = of->key_starts[key + 1] - of->key_starts[key];
    moment *moments = shl_alloc(txns->budget, 2 * most * (int64_t)sizeof(moment));
    int64_t *open = shl_alloc(txns->budget, most * 8);
    int done = moments && open;
    for (int64_t key = 0; done && key < txns->key_count; key++) {
        int64_t count = 0;
        for (int64_t i = of->key_starts[key]; i < of->key_starts[key + 1]; i++) {
            const shl_txn *txn = &txns->txns[of->touches[i].txn];
            if (txn->call != SHL_NONE)
                moments[count++] = (moment){txn->call, 0, i};
            if (txn->type == SHL_TXN_OK)
                moments[count++] = (moment){txn->ret, 1, i};
        }
        qsort(moments, (size_t)count, sizeof *moments, by_event);
        done = order_key_by_time(of, moments, count, open) && !shl_check_budget(txns->budget);
    }
    shl_free(txns->budget, moments, 2 * most * (int64_t)sizeof(moment));
    shl_free(txns->budget, open, most * 8);
    return done;
}

/* --- agreement --------------------------------------------------------------------------------*/

static int32_t key_of(const shl_registers *of, int32_t state)
{
    return state < of->txns->version_count ? of->txns->versions[state].key
                                           : (int32_t)(state - of->txns->version_count);
}

/* All orders so far, and from what each key held at first to all its versions, as rows. */
static int order_rows(const shl_registers *of, shl_part *rows)
{
    shl_txns *txns = of->txns;
    *rows = (shl_part){.vertices = of->states, .edge_room = of->order_count + txns->version_count};
    rows->starts = shl_alloc_zeroed(txns->budget, (of->states + 1) * 8);
    rows->to = shl_alloc(txns->budget, rows->edge_room * 4);
    int64_t *next = shl_alloc(txns->budget, of->states * 8);
    int done = rows->starts && rows->to && next;
    if (done) {
        for (int64_t i = 0; i < of->order_count; i++)
            rows->starts[of->orders[i].from + 1]++;
        for (int64_t v = 0; v < txns->version_count; v++)
            rows->starts[txns->version_count + txns->versions[v].key + 1]++;
        for (int64_t s = 0; s < of->states; s++)
            rows->starts[s + 1] += rows->starts[s];
        memcpy(next, rows->starts, (size_t)of->states * 8);
        for (int64_t i = 0; i < of->order_count; i++)
            rows->to[next[of->orders[i].from]++] = of->orders[i].to;
        for (int64_t v = 0; v < txns->version_count; v++)
            rows->to[next[txns->version_count + txns->versions[v].key]++] = (int32_t)v;
    }
    shl_free(txns->budget, next, of->states * 8);
    return done;
}

/* Notes each circle once, by two states on it, and marks its key. */
static int note_circles(shl_registers *of, const int32_t *component, int32_t *first_of,
                        int32_t sources, uint8_t *is_cyclic)
{
    for (int32_t s = 0; s < of->states; s++)
        first_of[component[s]] = SHL_NONE;
    for (int32_t s = 0; s < of->states; s++) {
        int32_t *first = &first_of[component[s]];
        if (*first == SHL_NEVER)
            continue;
        if (*first == SHL_NONE) {
            *first = s;
            continue;
        }
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_CYCLIC_VERSIONS, SHL_NONE, SHL_NONE);
        found.key = key_of(of, s);
        found.version = *first;
        found.other_version = s < of->txns->version_count ? s : SHL_NONE;
        found.place = sources;
        is_cyclic[found.key] = 1;
        *first = SHL_NEVER;
        if (!shl_txn_note(of->txns, found))
            return 0;
    }
    return 1;
}

/* Keeps the orders from `before` on of those keys whose order they leave without a circle. */
static int32_t agree(shl_registers *of, int64_t before, int32_t sources)
{
    shl_budget *budget = of->txns->budget;
    shl_part rows;
    int32_t *component = shl_alloc(budget, of->states * 4);
    int32_t *first_of = shl_alloc(budget, of->states * 4);
    uint8_t *is_cyclic = shl_alloc_zeroed(budget, of->txns->key_count);
    int32_t done = order_rows(of, &rows) && component && first_of && is_cyclic;
    if (done) {
        shl_rows plain = {of->states, rows.starts, rows.to, NULL, 0};
        done = shl_txn_components(budget, &plain, component) >= 0 &&
               note_circles(of, component, first_of, sources, is_cyclic);
    }
    int64_t kept = before;
    for (int64_t i = before; done && i < of->order_count; i++)
        if (!is_cyclic[key_of(of, of->orders[i].from)])
            of->orders[kept++] = of->orders[i];
    of->order_count = kept;
    shl_free(budget, rows.starts, (of->states + 1) * 8);
    shl_free(budget, rows.to, rows.edge_room * 4);
    shl_free(budget, component, of->states * 4);
    shl_free(budget, first_of, of->states * 4);
    shl_free(budget, is_cyclic, of->txns->key_count);
    return done;
}

static int by_states(const void *one, const void *other)
{
    const shl_order *a = one, *b = other;
    if (a->from != b->from)
        return (a->from > b->from) - (a->from < b->from);
    return (a->to > b->to) - (a->to < b->to);
}

static int try_source(shl_registers *of, int32_t is_asked, int (*source)(shl_registers *), int32_t name,
                      int32_t *sources)
{
    if (!is_asked)
        return 1;
    *sources |= name;
    int64_t before = of->order_count, kept = before;
    if (!source(of))
        return 0;
    if (of->order_count == before)
        return 1;
    shl_order *added = of->orders + before;
    qsort(added, (size_t)(of->order_count - before), sizeof(shl_order), by_states);
    for (int64_t i = before; i < of->order_count; i++)
        if (i == before || by_states(&of->orders[i], &of->orders[i - 1]))
            of->orders[kept++] = of->orders[i];
    of->order_count = kept;
    return agree(of, before, *sources);
}

int32_t shl_txn_find_orders(shl_registers *of)
{
    const shl_txn_options *options = &of->txns->options;
    int32_t sources = 0;
    return try_source(of, options->wfr_keys, order_by_reads, WFR, &sources) &&
           try_source(of, options->sequential_keys, order_by_processes, SEQUENTIAL, &sources) &&
           try_source(of, options->linearizable_keys, order_by_time, LINEARIZABLE, &sources);
}
