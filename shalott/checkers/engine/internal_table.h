/* Transitions, looked up at the speed of memory; a miss asks the model. */
#ifndef SHL_INTERNAL_TABLE_H
#define SHL_INTERNAL_TABLE_H

#include "search.h"

#include <pthread.h>

/* Dense rows where there are few kinds: row = rows[state / CHUNK][state % CHUNK], one cell a kind.
 * A hash of (state, kind) for all others. Cells are written once, under the lock, and read without
 * it; a table that has grown stays readable where it was until the end. */
enum {
    SHL_UNASKED = INT32_MIN,
    SHL_FIRST_LIST = -16, /* cell c <= this: several next states, list SHL_FIRST_LIST - c */
    DENSE_KINDS = 256,
    CHUNK = 256,
    CHUNKS = 1024, /* states beyond CHUNK * CHUNKS go to the hash */
};

typedef struct {
    uint64_t key; /* (state << 32 | kind) + 1; 0: empty */
    int32_t next;
} shl_cell;

typedef struct shl_hash {
    uint64_t slots; /* a power of two */
    uint64_t used;
    struct shl_hash *outgrown;
    shl_cell cells[];
} shl_hash;

typedef struct {
    int32_t count;
    int32_t states[];
} shl_list;

struct shl_table {
    int32_t kinds;
    uint8_t *pure;
    shl_ask_function ask;
    void *user;
    shl_budget *budget;
    pthread_mutex_t lock;
    int64_t asked;
    int32_t failed;
    int32_t row_kinds; /* cells a dense row has room for; 0: no dense rows */
    int32_t **chunks[CHUNKS];
    shl_hash *hash;
    shl_list **lists[CHUNKS]; /* list i = lists[i / CHUNK][i % CHUNK] */
    int32_t list_count;
    int32_t *gathered; /* what shl_branch gave during the ask under way */
    int32_t gathered_count, gathered_room;
};

/* The slow way: asks, stores, and answers the cell. SHL_ASK_FAILED: the model raised, or memory. */
int32_t shl_table_miss(shl_table *table, int32_t state, int32_t kind);
int32_t shl_table_hashed(shl_table *table, int32_t state, int32_t kind);

static inline int32_t shl_next(shl_table *table, int32_t state, int32_t kind)
{
    if (table->row_kinds && state < CHUNK * CHUNKS) {
        int32_t **chunk = __atomic_load_n(&table->chunks[state / CHUNK], __ATOMIC_ACQUIRE);
        if (chunk) {
            int32_t *row = __atomic_load_n(&chunk[state % CHUNK], __ATOMIC_ACQUIRE);
            if (row) {
                int32_t next = __atomic_load_n(&row[kind], __ATOMIC_ACQUIRE);
                if (next != SHL_UNASKED)
                    return next;
            }
        }
        return shl_table_miss(table, state, kind);
    }
    return shl_table_hashed(table, state, kind);
}

/* Several next states: how many, and which. */
static inline const shl_list *shl_list_of(const shl_table *table, int32_t next)
{
    int32_t list = SHL_FIRST_LIST - next;
    return __atomic_load_n(&table->lists[list / CHUNK], __ATOMIC_ACQUIRE)[list % CHUNK];
}

#endif
