/* Columns for the monitors and the search: ranks instead of clocks, dense ids instead of values. */
#include "engine.h"

#include <string.h>

/* Sorts rows by key, stable. Completions come almost in order of their invocations, so short
 * stretches are sorted by insertion, and of two stretches only the part that overlaps is merged:
 * one pass where there is nothing to do. */
typedef struct {
    int64_t key;
    int32_t row;
} keyed;

/* The first of rows[low..high) whose key is above `key`, or not below it. */
static int64_t first_beyond(const keyed *rows, int64_t low, int64_t high, int64_t key, int above)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int before = above ? rows[middle].key <= key : rows[middle].key < key;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

static void merge(keyed *rows, keyed *spare, int64_t low, int64_t middle, int64_t high)
{
    low = first_beyond(rows, low, middle, rows[middle].key, 1);
    high = first_beyond(rows, middle, high, rows[middle - 1].key, 0);
    int64_t left = 0, lefts = middle - low, right = middle;
    memcpy(spare, rows + low, (size_t)lefts * sizeof *rows);
    for (int64_t at = low; left < lefts; at++) {
        int take_left = right >= high || spare[left].key <= rows[right].key;
        rows[at] = take_left ? spare[left++] : rows[right++];
    }
}

/* Insertion sort of a short stretch: what is nearly in order moves little. */
static void settle(keyed *rows, int64_t low, int64_t high)
{
    for (int64_t at = low + 1; at < high; at++) {
        keyed moved = rows[at];
        int64_t to = at;
        for (; to > low && rows[to - 1].key > moved.key; to--)
            rows[to] = rows[to - 1];
        rows[to] = moved;
    }
}

enum { STRETCH = 32 };

static void sort_rows(keyed *rows, keyed *spare, int64_t n)
{
    for (int64_t low = 0; low < n; low += STRETCH)
        settle(rows, low, low + STRETCH < n ? low + STRETCH : n);
    for (int64_t width = STRETCH; width < n; width *= 2) {
        for (int64_t low = 0; low + width < n; low += 2 * width) {
            int64_t middle = low + width;
            int64_t high = low + 2 * width < n ? low + 2 * width : n;
            if (rows[middle - 1].key > rows[middle].key)
                merge(rows, spare, low, middle, high);
        }
    }
}

int32_t shl_rank(int64_t n, const int64_t *invoke_ns, const int64_t *complete_ns, int32_t *call,
                 int32_t *ret, shl_budget *budget)
{
    int64_t bytes = 2 * n * (int64_t)sizeof(keyed), completed = 0;
    keyed *rows = shl_alloc(budget, bytes);
    if (!rows)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        ret[i] = SHL_NEVER;
        if (complete_ns[i] != INT64_MAX)
            rows[completed++] = (keyed){complete_ns[i], (int32_t)i};
    }
    sort_rows(rows, rows + n, completed);
    int32_t rank = 0;
    int64_t called = 0;
    for (int64_t at = 0; at < completed; at++) {
        while (called < n && invoke_ns[called] <= rows[at].key)
            call[called++] = rank++;
        ret[rows[at].row] = rank++;
    }
    while (called < n)
        call[called++] = rank++;
    shl_free(budget, rows, bytes);
    return rank;
}

int32_t shl_last_return(int64_t n, const int32_t *ret)
{
    int32_t last = -1;
    for (int64_t i = 0; i < n; i++) {
        int32_t came = ret[i] == SHL_NEVER ? -1 : ret[i];
        last = came > last ? came : last;
    }
    return last;
}

/* --- dense ids ---------------------------------------------------------------------------------*/

static uint64_t scrambled(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x;
}

/* Values that lie close together need no hashing: a table over their range is filled in one
 * pass. */
static int32_t dense_by_range(int64_t n, const int64_t *values, const uint8_t *present,
                              int32_t *ids, int32_t *first, int64_t low, int64_t range,
                              shl_budget *budget)
{
    int64_t bytes = range * (int64_t)sizeof(int32_t);
    int32_t *seen = shl_alloc_zeroed(budget, bytes), count = 0;
    if (!seen)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (present && !present[i]) {
            ids[i] = SHL_NONE;
            continue;
        }
        int32_t *slot = &seen[(uint64_t)values[i] - (uint64_t)low];
        if (!*slot) {
            first[count] = (int32_t)i;
            *slot = ++count;
        }
        ids[i] = *slot - 1;
    }
    shl_free(budget, seen, bytes);
    return count;
}

static int32_t dense_by_hash(int64_t n, const int64_t *values, const uint8_t *present, int32_t *ids,
                             int32_t *first, shl_budget *budget)
{
    uint64_t slots = 16;
    while (slots < (uint64_t)n * 2)
        slots *= 2;
    int64_t bytes = (int64_t)(slots * sizeof(int32_t));
    int32_t *table = shl_alloc_zeroed(budget, bytes), count = 0;
    if (!table)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (present && !present[i]) {
            ids[i] = SHL_NONE;
            continue;
        }
        uint64_t at = scrambled((uint64_t)values[i]) & (slots - 1);
        while (table[at] && values[first[table[at] - 1]] != values[i])
            at = (at + 1) & (slots - 1);
        if (!table[at]) {
            first[count] = (int32_t)i;
            table[at] = ++count;
        }
        ids[i] = table[at] - 1;
    }
    shl_free(budget, table, bytes);
    return count;
}

int32_t shl_dense(int64_t n, const int64_t *values, const uint8_t *present, int32_t *ids,
                  int32_t *first, shl_budget *budget)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        if (present && !present[i])
            continue;
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    uint64_t range = high < low ? 0 : (uint64_t)high - (uint64_t)low;
    if (range < (uint64_t)n * 4)
        return dense_by_range(n, values, present, ids, first, low, (int64_t)range + 1, budget);
    return dense_by_hash(n, values, present, ids, first, budget);
}

/* --- one column out of two ---------------------------------------------------------------------*/

enum { INTEGER = 1 };

int64_t shl_ids_of_two(int64_t n, const shl_values *first, const shl_values *second,
                       const uint8_t *pick, uint8_t picked, const shl_values *asked, int32_t *ids,
                       int32_t *its_id)
{
    int64_t lowest = INT64_MAX, highest = INT64_MIN;
    int seen = 0;
    for (int64_t i = 0; i < n; i++) {
        const shl_values *from = pick[i] == picked ? second : first;
        int64_t number = from->number[i];
        uint8_t kind = from->kind[i];
        int is_integer = kind == INTEGER;
        seen |= kind;
        lowest = is_integer && number < lowest ? number : lowest;
        highest = is_integer && number > highest ? number : highest;
    }
    if ((seen & ~INTEGER) || lowest > highest
        || (uint64_t)highest - (uint64_t)lowest >= (uint64_t)n * 2)
        return -1;
    int32_t nothing = (int32_t)(highest - lowest + 1), wanted = nothing, found = 0;
    if (*asked->kind == INTEGER) {
        int is_between = *asked->number >= lowest && *asked->number <= highest;
        wanted = is_between ? (int32_t)(*asked->number - lowest) : SHL_NONE;
    }
    for (int64_t i = 0; i < n; i++) {
        const shl_values *from = pick[i] == picked ? second : first;
        int32_t id = from->kind[i] == INTEGER ? (int32_t)(from->number[i] - lowest) : nothing;
        ids[i] = id;
        found |= id == wanted;
    }
    *its_id = found ? wanted : SHL_NONE;
    return (int64_t)nothing + 1;
}
