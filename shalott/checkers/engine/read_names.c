/* Two tables of the readers: distinct slices with their numbers, and the row of each process.
 * Both are open addressing with linear probing, doubled at half full. */
#include "internal_read.h"

#include <string.h>

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    return x;
}

static uint32_t hash_of(shl_slice slice)
{
    uint64_t hash = (uint64_t)slice.length * 0x9e3779b97f4a7c15u, word;
    const char *at = slice.at;
    int64_t left = slice.length;
    for (; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash = mixed(hash ^ word);
    }
    word = 0;
    if (left > 0)
        memcpy(&word, at, (size_t)left);
    return (uint32_t)mixed(hash ^ word);
}

/* Doubles memory that an array lives in; 0: no memory. */
static int doubled(void **memory, int64_t item_bytes, int64_t room, int64_t new_room,
                   shl_budget *budget)
{
    void *grown = *memory ? shl_resize(budget, *memory, room * item_bytes, new_room * item_bytes)
                          : shl_alloc(budget, new_room * item_bytes);
    if (grown)
        *memory = grown;
    return grown != NULL;
}

static int more_names(shl_names *names, shl_budget *budget)
{
    int64_t room = names->room ? names->room * 2 : 16;
    /* Room counts for all three arrays only when all three have it. */
    int64_t *ends = shl_alloc(budget, room * (int64_t)sizeof *ends);
    int64_t *lines = shl_alloc(budget, room * (int64_t)sizeof *lines);
    uint32_t *hashes = shl_alloc(budget, room * (int64_t)sizeof *hashes);
    if (!ends || !lines || !hashes) {
        shl_free(budget, ends, room * (int64_t)sizeof *ends);
        shl_free(budget, lines, room * (int64_t)sizeof *lines);
        shl_free(budget, hashes, room * (int64_t)sizeof *hashes);
        return 0;
    }
    if (names->count) {
        memcpy(ends, names->ends, (size_t)names->count * sizeof *ends);
        memcpy(lines, names->lines, (size_t)names->count * sizeof *lines);
        memcpy(hashes, names->hashes, (size_t)names->count * sizeof *hashes);
    }
    shl_free(budget, names->ends, names->room * (int64_t)sizeof *ends);
    shl_free(budget, names->lines, names->room * (int64_t)sizeof *lines);
    shl_free(budget, names->hashes, names->room * (int64_t)sizeof *hashes);
    names->ends = ends;
    names->lines = lines;
    names->hashes = hashes;
    names->room = room;
    return 1;
}

static int more_slots(shl_names *names, shl_budget *budget)
{
    int64_t count = names->slot_count ? names->slot_count * 2 : 64;
    int32_t *slots = shl_alloc_zeroed(budget, count * (int64_t)sizeof *slots);
    if (!slots)
        return 0;
    for (int64_t number = 0; number < names->count; number++) {
        int64_t at = names->hashes[number] & (uint64_t)(count - 1);
        while (slots[at])
            at = (at + 1) & (count - 1);
        slots[at] = (int32_t)number + 1;
    }
    shl_free(budget, names->slots, names->slot_count * (int64_t)sizeof *slots);
    names->slots = slots;
    names->slot_count = count;
    return 1;
}

static int same(const shl_names *names, int64_t number, uint32_t hash, shl_slice slice)
{
    shl_slice known = shl_named(names, (int32_t)number);
    if (names->hashes[number] != hash || known.length != slice.length)
        return 0;
    return !slice.length || memcmp(known.at, slice.at, (size_t)slice.length) == 0;
}

static int keep_bytes(shl_names *names, shl_slice slice, shl_budget *budget)
{
    if (names->bytes_used + slice.length >= names->bytes_room) {
        int64_t room = names->bytes_room ? names->bytes_room * 2 : 256;
        while (room <= names->bytes_used + slice.length)
            room *= 2;
        if (!doubled((void **)&names->bytes, 1, names->bytes_room, room, budget))
            return 0;
        names->bytes_room = room;
    }
    if (slice.length)
        memcpy(names->bytes + names->bytes_used, slice.at, (size_t)slice.length);
    names->bytes_used += slice.length;
    names->bytes[names->bytes_used++] = (char)SHL_SEPARATOR;
    return 1;
}

int32_t shl_name(shl_names *names, shl_slice slice, int64_t line, shl_budget *budget)
{
    if (names->count * 2 >= names->slot_count && !more_slots(names, budget))
        return -1;
    uint32_t hash = hash_of(slice);
    int64_t at = hash & (uint64_t)(names->slot_count - 1);
    for (; names->slots[at]; at = (at + 1) & (names->slot_count - 1))
        if (same(names, names->slots[at] - 1, hash, slice))
            return names->slots[at] - 1;
    if (names->count == names->room && !more_names(names, budget))
        return -1;
    if (!keep_bytes(names, slice, budget))
        return -1;
    int64_t number = names->count++;
    names->ends[number] = names->bytes_used - 1;
    names->lines[number] = line;
    names->hashes[number] = hash;
    names->slots[at] = (int32_t)number + 1;
    return (int32_t)number;
}

void shl_names_free(shl_names *names, shl_budget *budget)
{
    shl_free(budget, names->bytes, names->bytes_room);
    shl_free(budget, names->ends, names->room * (int64_t)sizeof *names->ends);
    shl_free(budget, names->lines, names->room * (int64_t)sizeof *names->lines);
    shl_free(budget, names->hashes, names->room * (int64_t)sizeof *names->hashes);
    shl_free(budget, names->slots, names->slot_count * (int64_t)sizeof *names->slots);
}

/* --- rows by id --------------------------------------------------------------------------------*/

static int64_t place_of(const int64_t *ids, const int64_t *rows, int64_t slot_count, int64_t id)
{
    int64_t at = (int64_t)(mixed((uint64_t)id) & (uint64_t)(slot_count - 1));
    while (rows[at] && ids[at] != id)
        at = (at + 1) & (slot_count - 1);
    return at;
}

static int more_rows(shl_rows_by_id *table, shl_budget *budget)
{
    int64_t count = table->slot_count ? table->slot_count * 2 : 64;
    int64_t bytes = count * (int64_t)sizeof(int64_t);
    int64_t *ids = shl_alloc(budget, bytes), *rows = shl_alloc_zeroed(budget, bytes);
    if (!ids || !rows) {
        shl_free(budget, ids, bytes);
        shl_free(budget, rows, bytes);
        return 0;
    }
    for (int64_t old = 0; old < table->slot_count; old++) {
        if (!table->rows[old])
            continue;
        int64_t at = place_of(ids, rows, count, table->ids[old]);
        ids[at] = table->ids[old];
        rows[at] = table->rows[old];
    }
    shl_rows_free(table, budget);
    table->ids = ids;
    table->rows = rows;
    table->slot_count = count;
    return 1;
}

int64_t *shl_row_of(shl_rows_by_id *table, int64_t id, shl_budget *budget)
{
    if (table->count * 2 >= table->slot_count && !more_rows(table, budget))
        return NULL;
    int64_t at = place_of(table->ids, table->rows, table->slot_count, id);
    if (!table->rows[at]) {
        /* A place that is asked for and then not filled stays free: it may be counted twice, which
         * only makes the table grow a little early. */
        table->ids[at] = id;
        table->count++;
    }
    return &table->rows[at];
}

void shl_rows_free(shl_rows_by_id *table, shl_budget *budget)
{
    shl_free(budget, table->ids, table->slot_count * (int64_t)sizeof(int64_t));
    shl_free(budget, table->rows, table->slot_count * (int64_t)sizeof(int64_t));
}
