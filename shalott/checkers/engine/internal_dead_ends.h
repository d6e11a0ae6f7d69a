/* Depth first, in one width: what it holds, and the configurations that are known to lead nowhere.
 *
 * A dead configuration also rules out those that can do no more than it: the same but for fewer
 * reads done, or more crashed operations used up. */
#ifndef SHL_INTERNAL_DEAD_ENDS_H
#define SHL_INTERNAL_DEAD_ENDS_H

#include "internal_search.h"


typedef struct {
    mask done;
    int32_t state;
    int32_t used;
    int32_t e;
    int32_t stage; /* which moves are listed: see list_more */
    int64_t moves; /* those listed and not tried yet begin here; the next frame's follow them */
} frame;

typedef struct {
    int32_t op;
    int32_t class; /* -1: a pending operation */
    int32_t next;  /* the state after it */
    int32_t rank;  /* lower ones are tried first */
} move;

typedef struct {
    mask done;
    int32_t state;
    int32_t used;
    int32_t e;
    int32_t older; /* another with the same key; -1: none */
} dead_end;

typedef struct {
    const problem *p;
    view now;
    used_maps used;
    frame *frames;
    int64_t frame_count, frame_room;
    dead_end *dead;
    int64_t dead_count, dead_room;
    uint64_t *table; /* a key's hash << 32 | 1 + its newest dead end; 0: empty */
    int64_t slots, keys;
    int32_t *same; /* those of long chains, 1 + each, by all that it is; 0: empty */
    int64_t same_slots, same_count;
    move *moves;
    int64_t move_count, move_room;
    int32_t *earliest; /* [kinds] of the pending operations of a kind the one that returns first */
    uint8_t *needy;    /* [kinds] it was met in a state in which it is illegal */
    int32_t reached;
    int ended; /* GOES_ON, or how it ended */
} depth;

enum { FIRST_FRAMES = 256, FIRST_DEAD = 256, FIRST_SLOTS = 512, CHAIN_LOOK = 24 };

/* All of these expect the view to stand at e: it knows which bits are reads. */

static uint32_t dead_hash(const depth *d, const mask *done, int32_t state, int32_t e)
{
    mask hard = mask_minus(*done, &d->now.pure);
    uint64_t hash = ((uint64_t)(uint32_t)e << 32 | (uint32_t)state) * 0xd6e8feb86659fd93u;
    return (uint32_t)(mask_hash(&hard, hash ^ hash >> 32) >> 16);
}

static int same_key(const depth *d, const dead_end *dead, const mask *done, int32_t state,
                    int32_t e)
{
    if (dead->e != e || dead->state != state)
        return 0;
    mask a = mask_minus(dead->done, &d->now.pure), b = mask_minus(*done, &d->now.pure);
    return mask_equal(&a, &b);
}

static uint64_t *find_key(const depth *d, uint32_t hash, const mask *done, int32_t state, int32_t e)
{
    uint64_t around = (uint64_t)d->slots - 1, at = hash & around;
    for (;; at = (at + 1) & around) {
        uint64_t entry = d->table[at];
        if (!entry)
            return &d->table[at];
        if (entry >> 32 == hash &&
            same_key(d, &d->dead[(uint32_t)entry - 1], done, state, e))
            return &d->table[at];
    }
}

static uint64_t same_hash(const mask *done, int32_t state, int32_t used, int32_t e)
{
    uint64_t hash = ((uint64_t)(uint32_t)e << 32 | (uint32_t)state) * 0xd6e8feb86659fd93u;
    hash = (hash ^ hash >> 32 ^ (uint32_t)used) * 0xff51afd7ed558ccdu;
    return mask_hash(done, hash ^ hash >> 32);
}

static int32_t *find_same(const depth *d, const mask *done, int32_t state, int32_t used, int32_t e)
{
    uint64_t around = (uint64_t)d->same_slots - 1, at = same_hash(done, state, used, e) & around;
    for (; d->same[at]; at = (at + 1) & around) {
        const dead_end *dead = &d->dead[d->same[at] - 1];
        if (dead->used == used && dead->e == e && dead->state == state &&
            mask_equal(done, &dead->done))
            break;
    }
    return &d->same[at];
}

static int is_dead(const depth *d, const mask *done, int32_t state, int32_t used, int32_t e)
{
    if (!d->keys)
        return 0;
    uint64_t entry = *find_key(d, dead_hash(d, done, state, e), done, state, e);
    int32_t at = (int32_t)(uint32_t)entry - 1;
    for (int look = 0; at >= 0 && look < CHAIN_LOOK; look++, at = d->dead[at].older) {
        const dead_end *dead = &d->dead[at];
        if (mask_within(done, &dead->done, &d->now.pure) && used_within(&d->used, dead->used, used))
            return 1;
    }
    return at >= 0 && *find_same(d, done, state, used, e); /* beyond a few, only the very same */
}

static int grow_table(depth *d)
{
    shl_budget *budget = d->p->budget;
    int64_t slots = d->slots ? d->slots * 2 : FIRST_SLOTS;
    uint64_t *table = shl_alloc_zeroed(budget, slots * (int64_t)sizeof *table);
    if (!table)
        return 0;
    for (int64_t i = 0; i < d->slots; i++) {
        uint64_t at = (d->table[i] >> 32) & (uint64_t)(slots - 1);
        while (d->table[i] && table[at])
            at = (at + 1) & (uint64_t)(slots - 1);
        if (d->table[i])
            table[at] = d->table[i];
    }
    shl_free(budget, d->table, d->slots * (int64_t)sizeof *table);
    d->table = table;
    d->slots = slots;
    return 1;
}

static void keep_same(depth *d, int32_t number)
{
    const dead_end *dead = &d->dead[number];
    int32_t *slot = find_same(d, &dead->done, dead->state, dead->used, dead->e);
    d->same_count += *slot == 0;
    *slot = number + 1;
}

/* Room for a chain's worth more. */
static int grow_same(depth *d)
{
    if ((d->same_count + CHAIN_LOOK + 1) * 2 <= d->same_slots)
        return 1;
    shl_budget *budget = d->p->budget;
    int64_t old_slots = d->same_slots, slots = old_slots ? old_slots * 2 : FIRST_SLOTS;
    int32_t *old = d->same, *same = shl_alloc_zeroed(budget, slots * (int64_t)sizeof *same);
    if (!same)
        return 0;
    d->same = same;
    d->same_slots = slots;
    d->same_count = 0;
    for (int64_t i = 0; i < old_slots; i++)
        if (old[i])
            keep_same(d, old[i] - 1);
    shl_free(budget, old, old_slots * (int64_t)sizeof *old);
    return 1;
}

static int grow_dead(depth *d)
{
    if (d->dead_count < d->dead_room)
        return 1;
    int64_t room = d->dead_room ? d->dead_room * 2 : FIRST_DEAD;
    dead_end *more = shl_resize(d->p->budget, d->dead, d->dead_room * (int64_t)sizeof *more,
                                room * (int64_t)sizeof *more);
    if (!more)
        return 0;
    d->dead = more;
    d->dead_room = room;
    return 1;
}

/* Of a chain that is not looked at to its end any more, those at the end are found by hash. */
static int keep_long_chain(depth *d)
{
    int32_t newest = (int32_t)d->dead_count - 1, length = 0;
    for (int32_t at = newest; at >= 0 && length <= CHAIN_LOOK + 1; at = d->dead[at].older)
        length++;
    if (length <= CHAIN_LOOK)
        return 1;
    if (!grow_same(d))
        return 0;
    int32_t count = length == CHAIN_LOOK + 1 ? length : 1; /* longer ones have kept the others */
    for (int32_t at = newest; count-- > 0; at = d->dead[at].older)
        keep_same(d, at);
    return 1;
}

static int bury(depth *d, const frame *f)
{
    if (!grow_dead(d) || ((d->keys + 1) * 2 > d->slots && !grow_table(d)))
        return 0;
    uint32_t hash = dead_hash(d, &f->done, f->state, f->e);
    uint64_t *entry = find_key(d, hash, &f->done, f->state, f->e);
    d->keys += *entry == 0;
    d->dead[d->dead_count] =
        (dead_end){f->done, f->state, f->used, f->e, (int32_t)(uint32_t)*entry - 1};
    *entry = (uint64_t)hash << 32 | (uint64_t)++d->dead_count;
    return keep_long_chain(d);
}

#endif
