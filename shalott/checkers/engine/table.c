/* The transition table: filled lazily, each (state, kind) asked once of a model that may be
 * slow. */
#include "internal_search.h"

#include <string.h>

enum { FIRST_SLOTS = 256 };

static int64_t hash_bytes(uint64_t slots)
{
    return (int64_t)(sizeof(shl_hash) + slots * sizeof(shl_cell));
}

static shl_hash *new_hash(shl_budget *budget, uint64_t slots)
{
    shl_hash *hash = shl_alloc_zeroed(budget, hash_bytes(slots));
    if (hash)
        hash->slots = slots;
    return hash;
}

shl_table *shl_table_new(int32_t kinds, const uint8_t *pure, shl_ask_function ask, void *user,
                         shl_budget *budget)
{
    shl_table *table = shl_alloc_zeroed(budget, sizeof *table);
    if (!table)
        return NULL;
    table->ask = ask;
    table->user = user;
    table->budget = budget;
    pthread_mutex_init(&table->lock, NULL);
    table->row_kinds = kinds <= DENSE_KINDS ? kinds + kinds / 2 + 8 : 0;
    table->hash = new_hash(budget, FIRST_SLOTS);
    if (!table->hash || !shl_table_grow(table, kinds, pure, budget)) {
        shl_table_free(table, budget);
        return NULL;
    }
    return table;
}

static int64_t row_bytes(const shl_table *table)
{
    return (int64_t)table->row_kinds * (int64_t)sizeof(int32_t);
}

static int32_t *new_row(const shl_table *table)
{
    int32_t *row = shl_alloc(table->budget, row_bytes(table));
    for (int32_t kind = 0; row && kind < table->row_kinds; kind++)
        row[kind] = SHL_UNASKED;
    return row;
}

static void drop_rows(shl_table *table, shl_budget *budget)
{
    for (int32_t c = 0; c < CHUNKS; c++) {
        int32_t **chunk = table->chunks[c];
        for (int32_t r = 0; chunk && r < CHUNK; r++)
            shl_free(budget, chunk[r], row_bytes(table));
        shl_free(budget, chunk, CHUNK * (int64_t)sizeof *chunk);
        table->chunks[c] = NULL;
    }
}

/* A row that finds no memory is left out: it is asked again. */
static void widen_rows(shl_table *table, int32_t row_kinds)
{
    int64_t narrow = row_bytes(table);
    table->row_kinds = row_kinds;
    for (int32_t c = 0; c < CHUNKS; c++) {
        int32_t **chunk = table->chunks[c];
        for (int32_t r = 0; chunk && r < CHUNK; r++) {
            if (!chunk[r])
                continue;
            int32_t *wide = new_row(table);
            if (wide)
                memcpy(wide, chunk[r], (size_t)narrow);
            shl_free(table->budget, chunk[r], narrow);
            chunk[r] = wide;
        }
    }
}

int32_t shl_table_grow(shl_table *table, int32_t kinds, const uint8_t *pure, shl_budget *budget)
{
    uint8_t *copy = shl_alloc(budget, kinds);
    if (!copy)
        return 0;
    memcpy(copy, pure, (size_t)kinds);
    shl_free(budget, table->pure, table->kinds);
    table->pure = copy;
    table->kinds = kinds;
    table->budget = budget;
    if (kinds > DENSE_KINDS && table->row_kinds) {
        drop_rows(table, budget); /* it is asked again, by the hash: once */
        table->row_kinds = 0;
    } else if (kinds > table->row_kinds && table->row_kinds)
        widen_rows(table, kinds * 2);
    return 1;
}

static int64_t list_bytes(int32_t count)
{
    return (int64_t)sizeof(shl_list) + count * (int64_t)sizeof(int32_t);
}

void shl_table_free(shl_table *table, shl_budget *budget)
{
    if (!table)
        return;
    drop_rows(table, budget);
    while (table->hash) {
        shl_hash *outgrown = table->hash->outgrown;
        shl_free(budget, table->hash, hash_bytes(table->hash->slots));
        table->hash = outgrown;
    }
    for (int32_t i = 0; i < table->list_count; i++) {
        shl_list *list = table->lists[i / CHUNK][i % CHUNK];
        shl_free(budget, list, list_bytes(list->count));
    }
    for (int32_t c = 0; c < CHUNKS; c++)
        shl_free(budget, table->lists[c], CHUNK * (int64_t)sizeof(shl_list *));
    shl_free(budget, table->gathered, table->gathered_room * (int64_t)sizeof(int32_t));
    shl_free(budget, table->pure, table->kinds);
    pthread_mutex_destroy(&table->lock);
    shl_free(budget, table, sizeof *table);
}

int64_t shl_table_asked(const shl_table *table)
{
    return table->asked;
}

void shl_branch(shl_table *table, int32_t state)
{
    if (table->gathered_count == table->gathered_room) {
        int32_t room = table->gathered_room ? table->gathered_room * 2 : 16;
        int32_t *more = shl_resize(table->budget, table->gathered,
                                   table->gathered_room * (int64_t)sizeof(int32_t),
                                   room * (int64_t)sizeof(int32_t));
        if (!more) {
            table->failed = 1;
            return;
        }
        table->gathered = more;
        table->gathered_room = room;
    }
    table->gathered[table->gathered_count++] = state;
}

/* The states gathered, as a list of the table's; answers its cell. */
static int32_t keep_list(shl_table *table)
{
    if (table->gathered_count == 0)
        return SHL_ILLEGAL;
    if (table->gathered_count == 1)
        return table->gathered[0];
    if (table->list_count == CHUNK * CHUNKS)
        return SHL_ASK_FAILED;
    shl_list ***chunk = &table->lists[table->list_count / CHUNK];
    if (!*chunk)
        __atomic_store_n(chunk, shl_alloc(table->budget, CHUNK * (int64_t)sizeof **chunk),
                         __ATOMIC_RELEASE);
    shl_list *list = *chunk ? shl_alloc(table->budget, list_bytes(table->gathered_count)) : NULL;
    if (!list)
        return SHL_ASK_FAILED;
    list->count = table->gathered_count;
    memcpy(list->states, table->gathered, (size_t)list->count * sizeof(int32_t));
    (*chunk)[table->list_count % CHUNK] = list;
    return SHL_FIRST_LIST - table->list_count++; /* published with the cell that names it */
}

static int32_t asked_of_model(shl_table *table, int32_t state, int32_t kind)
{
    table->gathered_count = 0;
    table->asked++;
    int32_t next = table->ask(table->user, table, state, kind);
    if (table->failed)
        return SHL_ASK_FAILED;
    if (next == SHL_BRANCHES)
        next = keep_list(table);
    if (next == SHL_ASK_FAILED)
        table->failed = 1;
    else if (table->pure[kind] && next != state && next != SHL_ILLEGAL)
        table->failed = 1; /* it was said never to change a state */
    return table->failed ? SHL_ASK_FAILED : next;
}

int32_t shl_table_miss(shl_table *table, int32_t state, int32_t kind)
{
    pthread_mutex_lock(&table->lock);
    int32_t next = SHL_ASK_FAILED;
    int32_t **chunk = table->chunks[state / CHUNK];
    if (!chunk) {
        chunk = shl_alloc_zeroed(table->budget, CHUNK * (int64_t)sizeof *chunk);
        __atomic_store_n(&table->chunks[state / CHUNK], chunk, __ATOMIC_RELEASE);
    }
    int32_t *row = chunk ? chunk[state % CHUNK] : NULL;
    if (chunk && !row) {
        row = new_row(table);
        __atomic_store_n(&chunk[state % CHUNK], row, __ATOMIC_RELEASE);
    }
    if (row && !table->failed) {
        next = row[kind] != SHL_UNASKED ? row[kind] : asked_of_model(table, state, kind);
        if (next != SHL_ASK_FAILED)
            __atomic_store_n(&row[kind], next, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&table->lock);
    return next;
}

static uint64_t scrambled(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static shl_cell *cell_of(shl_hash *hash, uint64_t key)
{
    uint64_t at = scrambled(key) & (hash->slots - 1);
    for (;;) {
        uint64_t there = __atomic_load_n(&hash->cells[at].key, __ATOMIC_ACQUIRE);
        if (there == key || there == 0)
            return &hash->cells[at];
        at = (at + 1) & (hash->slots - 1);
    }
}

static int make_room(shl_table *table)
{
    shl_hash *old = table->hash;
    if (old->used * 3 < old->slots * 2)
        return 1;
    shl_hash *hash = new_hash(table->budget, old->slots * 2);
    if (!hash)
        return 0;
    for (uint64_t at = 0; at < old->slots; at++)
        if (old->cells[at].key)
            *cell_of(hash, old->cells[at].key) = old->cells[at];
    hash->used = old->used;
    hash->outgrown = old;
    __atomic_store_n(&table->hash, hash, __ATOMIC_RELEASE);
    return 1;
}

int32_t shl_table_hashed(shl_table *table, int32_t state, int32_t kind)
{
    uint64_t key = ((uint64_t)(uint32_t)state << 32 | (uint32_t)kind) + 1;
    shl_cell *cell = cell_of(__atomic_load_n(&table->hash, __ATOMIC_ACQUIRE), key);
    if (__atomic_load_n(&cell->key, __ATOMIC_ACQUIRE) == key)
        return cell->next;
    pthread_mutex_lock(&table->lock);
    int32_t next = SHL_ASK_FAILED;
    cell = cell_of(table->hash, key);
    if (cell->key == key)
        next = cell->next;
    else if (!table->failed && make_room(table)) {
        next = asked_of_model(table, state, kind);
        if (next != SHL_ASK_FAILED) {
            cell = cell_of(table->hash, key);
            cell->next = next;
            __atomic_store_n(&cell->key, key, __ATOMIC_RELEASE);
            table->hash->used++;
        }
    }
    pthread_mutex_unlock(&table->lock);
    return next;
}
