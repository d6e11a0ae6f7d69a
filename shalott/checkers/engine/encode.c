/* Encoding: one pass that numbers operations and counts objects, one that puts them in their place,
 * one over time that gives each object ranks of its own. */
#include "search.h"

#include <string.h>

enum { OK = 0, FAILED = 1, CRASHED = 2, NOTHING = 0, FORM = 2, FIRST_ROOM = 64 };

/* --- kinds -------------------------------------------------------------------------------------*/

typedef struct {
    int64_t argument, result;
    int32_t f, process;
    uint8_t argument_kind, result_kind, type;
} meant;

struct shl_kinds {
    shl_budget *budget;
    meant *each;
    uint8_t *pure;
    int32_t *table; /* 1 + kind; 0: empty */
    int32_t count;
    int32_t room; /* of each and pure; the table has twice as many slots */
};

static uint64_t mixed(uint64_t hash, uint64_t with)
{
    hash = (hash ^ with) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const meant *m)
{
    uint64_t small = (uint64_t)(uint32_t)m->f << 40 | (uint64_t)m->argument_kind << 4 |
                     (uint64_t)m->result_kind << 2 | m->type;
    uint64_t hash = mixed(small, (uint64_t)m->argument);
    return mixed(mixed(hash, (uint64_t)m->result), (uint64_t)(uint32_t)m->process);
}

static int same(const meant *a, const meant *b)
{
    return a->argument == b->argument && a->result == b->result && a->f == b->f &&
           a->process == b->process && a->argument_kind == b->argument_kind &&
           a->result_kind == b->result_kind && a->type == b->type;
}

static int32_t *slot_of(const shl_kinds *kinds, const meant *m)
{
    uint64_t around = (uint64_t)kinds->room * 2 - 1, at = hash_of(m) & around;
    while (kinds->table[at] && !same(&kinds->each[kinds->table[at] - 1], m))
        at = (at + 1) & around;
    return &kinds->table[at];
}

/* All three arrays in one block, so that growing succeeds or changes nothing. */
static int64_t block_bytes(int64_t room)
{
    return room * (int64_t)(sizeof(meant) + 2 * sizeof(int32_t) + sizeof(uint8_t));
}

static int make_room(shl_kinds *kinds)
{
    int64_t room = kinds->room ? (int64_t)kinds->room * 2 : FIRST_ROOM;
    meant *each = room <= INT32_MAX / 2 ? shl_alloc(kinds->budget, block_bytes(room)) : NULL;
    if (!each)
        return 0;
    int32_t *table = (int32_t *)(each + room);
    uint8_t *pure = (uint8_t *)(table + 2 * room);
    memset(table, 0, (size_t)room * 2 * sizeof *table);
    if (kinds->count) {
        memcpy(each, kinds->each, (size_t)kinds->count * sizeof *each);
        memcpy(pure, kinds->pure, (size_t)kinds->count);
    }
    shl_free(kinds->budget, kinds->each, block_bytes(kinds->room));
    kinds->each = each;
    kinds->table = table;
    kinds->pure = pure;
    kinds->room = (int32_t)room;
    for (int32_t kind = 0; kind < kinds->count; kind++)
        *slot_of(kinds, &each[kind]) = kind + 1;
    return 1;
}

shl_kinds *shl_kinds_new(shl_budget *budget)
{
    shl_kinds *kinds = shl_alloc_zeroed(budget, sizeof *kinds);
    if (!kinds)
        return NULL;
    kinds->budget = budget;
    if (!make_room(kinds)) {
        shl_kinds_free(kinds);
        return NULL;
    }
    return kinds;
}

void shl_kinds_free(shl_kinds *kinds)
{
    if (!kinds)
        return;
    shl_free(kinds->budget, kinds->each, block_bytes(kinds->room));
    shl_free(kinds->budget, kinds, sizeof *kinds);
}

int32_t shl_kinds_count(const shl_kinds *kinds)
{
    return kinds->count;
}

const uint8_t *shl_kinds_pure(const shl_kinds *kinds)
{
    return kinds->pure;
}

void shl_kinds_mark_pure(shl_kinds *kinds, int32_t kind)
{
    kinds->pure[kind] = 1;
}

int32_t shl_repeated(const shl_kinds *kinds, int64_t n, const int32_t *kind, shl_budget *budget)
{
    uint8_t *seen = shl_alloc_zeroed(budget, kinds->count);
    int32_t lowest = SHL_NONE;
    for (int64_t i = 0; seen && i < n; i++) {
        if (seen[kind[i]] && !kinds->pure[kind[i]] && (lowest < 0 || kind[i] < lowest))
            lowest = kind[i];
        seen[kind[i]] = 1;
    }
    shl_free(budget, seen, kinds->count);
    return lowest;
}

/* --- rows --------------------------------------------------------------------------------------*/

static void take_value(uint8_t kind, int64_t number, const int32_t *forms, uint8_t *to_kind,
                       int64_t *to)
{
    *to_kind = kind;
    *to = kind == NOTHING ? 0 : kind == FORM ? forms[number] : number;
}

static meant meant_by(const shl_rows *rows, int64_t i)
{
    uint8_t reads = rows->reads[rows->f[i]];
    meant m = {.f = rows->means[rows->f[i]], .type = rows->type[i]};
    if (rows->process)
        m.process = rows->process[i];
    if (reads & SHL_READS_ARGUMENT)
        take_value(rows->argument_kind[i], rows->argument[i], rows->argument_forms,
                   &m.argument_kind, &m.argument);
    if ((reads & SHL_READS_RESULT) && m.type == OK)
        take_value(rows->result_kind[i], rows->result[i], rows->result_forms, &m.result_kind,
                   &m.result);
    else if (!(reads & SHL_READS_RESULT) && m.type == CRASHED)
        m.type = OK; /* it makes no difference to the model */
    return m;
}

static int is_left_out(uint8_t reads, uint8_t type)
{
    return type == FAILED ? !(reads & SHL_SEES_FAILURE) : type == CRASHED && (reads & SHL_IS_PURE);
}

/* The kind of row i; -1: no memory. */
static int32_t kind_of(const shl_rows *rows, int64_t i, shl_kinds *kinds, shl_encoded *out)
{
    if (kinds->count == kinds->room && !make_room(kinds))
        return -1;
    meant m = meant_by(rows, i);
    int32_t *slot = slot_of(kinds, &m);
    if (!*slot) {
        kinds->each[kinds->count] = m;
        kinds->pure[kinds->count] = (rows->reads[rows->f[i]] & SHL_IS_PURE) || m.type == FAILED;
        *slot = ++kinds->count;
        out->fresh[out->fresh_count++] = (int32_t)i;
    }
    return *slot - 1;
}

/* Each object's operations, in order; start[key + 1] has been counted. */
static void place(const shl_rows *rows, shl_encoded *out)
{
    for (int32_t key = 0; key < rows->keys; key++)
        out->start[key + 1] += out->start[key];
    for (int64_t i = 0; i < rows->n; i++) {
        if (is_left_out(rows->reads[rows->f[i]], rows->type[i]))
            continue;
        int32_t key = rows->key ? rows->key[i] : 0;
        out->row[out->start[key]++] = (int32_t)i;
    }
    memmove(out->start + 1, out->start, (size_t)rows->keys * sizeof *out->start);
    out->start[0] = 0;
}

/* Events in the order of time, 1 + operation, completions negative; then ranks of each object. */
static int rank_again(const shl_rows *rows, shl_encoded *out, shl_budget *budget)
{
    int32_t last = 0, n = out->start[rows->keys];
    for (int64_t i = 0; i < rows->n; i++) {
        last = rows->call[i] > last ? rows->call[i] : last;
        last = rows->ret[i] > last && rows->ret[i] != SHL_NEVER ? rows->ret[i] : last;
    }
    int64_t bytes = ((int64_t)last + 1) * (int64_t)sizeof(int32_t);
    int32_t *events = shl_alloc_zeroed(budget, bytes);
    if (!events)
        return 0;
    for (int32_t at = 0; at < n; at++) {
        int32_t i = out->row[at];
        int crashed = rows->type[i] == CRASHED || rows->ret[i] == SHL_NEVER;
        events[rows->call[i]] = at + 1;
        out->ret[at] = SHL_NEVER;
        if (!crashed)
            events[rows->ret[i]] = -at - 1;
    }
    memset(out->ranks, 0, (size_t)rows->keys * sizeof *out->ranks);
    for (int32_t rank = 0; rank <= last; rank++) {
        int32_t event = events[rank];
        if (!event)
            continue;
        int32_t at = (event > 0 ? event : -event) - 1;
        int32_t *counted = &out->ranks[rows->key ? rows->key[out->row[at]] : 0];
        *(event > 0 ? &out->call[at] : &out->ret[at]) = (*counted)++;
    }
    shl_free(budget, events, bytes);
    return 1;
}

int32_t shl_encode(const shl_rows *rows, shl_kinds *kinds, int32_t *memory, shl_encoded *out,
                   shl_budget *budget)
{
    int64_t n = rows->n;
    *out = (shl_encoded){
        .row = memory,
        .call = memory + n,
        .ret = memory + 2 * n,
        .kind = memory + 3 * n,
        .fresh = memory + 4 * n,
        .start = memory + 5 * n,
        .ranks = memory + 5 * n + rows->keys + 1,
    };
    memset(out->start, 0, ((size_t)rows->keys + 1) * sizeof *out->start);
    int32_t *kind_of_row = out->call; /* until calls are known */
    for (int64_t i = 0; i < rows->n; i++) {
        if (is_left_out(rows->reads[rows->f[i]], rows->type[i]))
            continue;
        out->start[(rows->key ? rows->key[i] : 0) + 1]++;
        kind_of_row[i] = kind_of(rows, i, kinds, out);
        if (kind_of_row[i] < 0)
            return SHL_MEMORY;
    }
    place(rows, out);
    for (int32_t at = 0; at < out->start[rows->keys]; at++)
        out->kind[at] = kind_of_row[out->row[at]];
    return rank_again(rows, out, budget) ? 0 : SHL_MEMORY;
}

void shl_operations_of(const shl_encoded *encoded, int32_t key, shl_operations *operations)
{
    int32_t begin = encoded->start[key];
    operations->n = encoded->start[key + 1] - begin;
    operations->ranks = encoded->ranks[key];
    operations->call = encoded->call + begin;
    operations->ret = encoded->ret + begin;
    operations->kind = encoded->kind + begin;
}
