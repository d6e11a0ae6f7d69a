/* Sets of configurations, in one width, that keep only those which no other makes superfluous: what
 * the layers of internal_layers.h are made of. */
#ifndef SHL_INTERNAL_CONFIGS_H
#define SHL_INTERNAL_CONFIGS_H

#include "internal_search.h"


typedef struct {
    mask done;
    int32_t state;
    int32_t used;  /* of the counted classes */
    int32_t trail; /* the uses of the others, newest first; -1: none */
    int32_t older; /* in its set: another with the same key */
    int32_t last_state, last_kind; /* the step within this layer that led here, and from where */
} config;

typedef struct {
    config *configs;
    int32_t count, room;
    uint64_t *table; /* stamp << 32 | 1 + newest config of the key */
    int64_t slots;
    int64_t keys;
    uint32_t stamp; /* entries with another stamp are empty: clearing costs nothing */
} config_set;

typedef struct {
    int32_t older;
    int32_t class;
    int32_t e;
} trail_step;

enum { FIRST_CONFIGS = 64, FIRST_TABLE = 256, NO_STEP = -1, CACHED_STATES = 64 };

typedef struct {
    int32_t e;
    int32_t state;
    mask legal;
} reads_of_state;

typedef struct {
    const problem *p;
    view now;
    used_maps used;
    uint8_t *counted;  /* [classes] */
    int32_t uncounted;
    config_set layer, next, open;
    int32_t expanded; /* of those that are open */
    int within;       /* it paused within a return */
    mask better_done;   /* where more done is better: reads, what a class without limit repeats */
    mask better_open;   /* where less done is better: what a window takes to be optional */
    trail_step *trail;
    int32_t trail_count, trail_room;
    int64_t most, steps;
    int32_t stuck;
    int ended;
    reads_of_state cache[CACHED_STATES];
} layers;

static void set_free(config_set *set, shl_budget *budget)
{
    shl_free(budget, set->configs, set->room * (int64_t)sizeof *set->configs);
    shl_free(budget, set->table, set->slots * (int64_t)sizeof *set->table);
    memset(set, 0, sizeof *set);
}

static void set_clear(config_set *set)
{
    set->count = 0;
    set->keys = 0;
    if (++set->stamp == 0) {
        if (set->table)
            memset(set->table, 0, (size_t)set->slots * sizeof *set->table);
        set->stamp = 1;
    }
}

static mask hard_part(const layers *l, const mask *done)
{
    mask hard = mask_minus(*done, &l->better_done);
    return mask_minus(hard, &l->better_open);
}

static uint64_t *set_find(const layers *l, const config_set *set, const mask *done, int32_t state)
{
    mask hard = hard_part(l, done);
    uint64_t around = (uint64_t)set->slots - 1;
    uint64_t at = mask_hash(&hard, (uint64_t)(uint32_t)state * 0xd6e8feb86659fd93u) & around;
    for (;; at = (at + 1) & around) {
        uint64_t entry = set->table[at];
        if (entry >> 32 != set->stamp)
            return &set->table[at];
        const config *there = &set->configs[(uint32_t)entry - 1];
        if (there->state == state) {
            mask other = hard_part(l, &there->done);
            if (mask_equal(&hard, &other))
                return &set->table[at];
        }
    }
}

static int set_grow(layers *l, config_set *set)
{
    shl_budget *budget = l->p->budget;
    if (set->count == set->room) {
        int32_t room = set->room ? set->room * 2 : FIRST_CONFIGS;
        config *more = shl_resize(budget, set->configs, set->room * (int64_t)sizeof *more,
                                  room * (int64_t)sizeof *more);
        if (!more)
            return 0;
        set->configs = more;
        set->room = room;
    }
    if ((set->keys + 1) * 2 <= set->slots)
        return 1;
    int64_t slots = set->slots ? set->slots * 2 : FIRST_TABLE;
    uint64_t *old = set->table;
    int64_t old_slots = set->slots;
    set->table = shl_alloc_zeroed(budget, slots * (int64_t)sizeof *old);
    if (!set->table) {
        set->table = old;
        return 0;
    }
    set->slots = slots;
    for (int64_t i = 0; i < old_slots; i++) {
        const config *there = &set->configs[(uint32_t)old[i] - 1];
        if (old[i] >> 32 == set->stamp)
            *set_find(l, set, &there->done, there->state) = old[i];
    }
    shl_free(budget, old, old_slots * (int64_t)sizeof *old);
    return 1;
}

static int dominates(const layers *l, const config *a, const config *b)
{
    return mask_within(&b->done, &a->done, &l->better_done) &&
           mask_within(&a->done, &b->done, &l->better_open) &&
           used_within(&l->used, a->used, b->used);
}

/* Adds a configuration unless one is there that can do whatever it can. 0: no memory. */
static int set_add(layers *l, config_set *set, const config *added)
{
    if (!set_grow(l, set))
        return 0;
    uint64_t *entry = set_find(l, set, &added->done, added->state);
    int32_t newest = -1;
    if (*entry >> 32 == set->stamp) {
        newest = (int32_t)(uint32_t)*entry - 1;
        for (int32_t at = newest; at >= 0; at = set->configs[at].older)
            if (dominates(l, &set->configs[at], added))
                return 1;
    } else {
        set->keys++;
    }
    set->configs[set->count] = *added;
    set->configs[set->count].older = newest;
    *entry = (uint64_t)set->stamp << 32 | (uint64_t)++set->count;
    return 1;
}

#endif
