/* Depth first, in one width: Wing and Gong's search with Lowe's memory of configurations.
 *
 * A configuration stands before return e: everything that returned earlier is linearized, `done`
 * says which pending operations are, too, and `used` how many crashed ones. A move linearizes one
 * more operation; then every return whose operation is done is passed. Moves are tried in the order
 * in which the operations return. Only configurations that led nowhere are remembered (nothing is
 * ever met twice on one path: moves only add), so a history that is linearizable needs next to no
 * memory.
 *
 * A dead configuration also rules out those that can do no more than it: the same but for fewer
 * reads done, or more crashed operations used up. */
#ifndef SHL_INTERNAL_DEPTH_H
#define SHL_INTERNAL_DEPTH_H

#include "internal_search.h"

typedef struct {
    mask done;
    int32_t state;
    int32_t used;
    int32_t e;
    int32_t move;   /* the next one to try */
    int32_t branch; /* of a move with several outcomes: the next one */
} frame;

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
    int32_t near; /* moves [0, near) are the returns from e on; then slots; then classes */
    int32_t reached;
    int ended; /* GOES_ON, or how it ended */
} depth;

enum { FIRST_FRAMES = 256, FIRST_DEAD = 256, FIRST_SLOTS = 512, CHAIN_LOOK = 24 };

/* --- dead ends ---------------------------------------------------------------------------------
 * All of these expect the view to stand at e: it knows which bits are reads. */

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
    for (; at >= 0; at = d->dead[at].older) /* beyond a few, only the very same */
        if (d->dead[at].used == used && mask_equal(done, &d->dead[at].done))
            return 1;
    return 0;
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
    return 1;
}

/* --- moves -------------------------------------------------------------------------------------*/

static int grow_frames(depth *d)
{
    if (d->frame_count < d->frame_room)
        return 1;
    int64_t room = d->frame_room ? d->frame_room * 2 : FIRST_FRAMES;
    frame *more = shl_resize(d->p->budget, d->frames, d->frame_room * (int64_t)sizeof *more,
                             room * (int64_t)sizeof *more);
    if (!more)
        return 0;
    d->frames = more;
    d->frame_room = room;
    return 1;
}

/* Linearizes what takes effect at once, passes every return that is done, and goes on from there:
 * a new frame, unless it is known to be dead. */
static int descend(depth *d, mask done, int32_t state, int32_t used)
{
    const problem *p = d->p;
    if (settle_pure(&d->now, p, &done, state) < 0 || !grow_frames(d))
        return STOPPED;
    int32_t e = d->now.at.e, from = e;
    while (e < p->returns && mask_has(&done, p->place[p->order[e]])) {
        mask_clear(&done, p->place[p->order[e]]);
        view_forward(&d->now, p);
        e++;
        if (settle_pure(&d->now, p, &done, state) < 0)
            return STOPPED;
    }
    d->reached = e > d->reached ? e : d->reached;
    if (e == p->returns)
        return WITNESS;
    if (is_dead(d, &done, state, used, e)) {
        while (e-- > from)
            view_backward(&d->now, p);
        return GOES_ON;
    }
    d->frames[d->frame_count++] = (frame){done, state, used, e, 0, 0};
    return GOES_ON;
}

/* Another pending operation of the same kind that returns earlier: then that one goes first, for
 * the two could be exchanged in any linearization. */
static int has_earlier_twin(const depth *d, const frame *f, int32_t op)
{
    const problem *p = d->p;
    int32_t slot, kind = p->ops->kind[op];
    mask waiting = mask_minus(d->now.live, &f->done);
    FOR_EACH(slot, waiting)
    {
        int32_t other = d->now.at.slot_op[slot];
        if (p->ops->kind[other] == kind && p->ops->ret[other] < p->ops->ret[op])
            return 1;
    }
    return 0;
}

static int waits_in_slot(const depth *d, const frame *f, int32_t kind)
{
    int32_t slot;
    mask waiting = mask_minus(d->now.live, &f->done);
    FOR_EACH(slot, waiting)
        if (d->p->ops->kind[d->now.at.slot_op[slot]] == kind)
            return 1;
    return 0;
}

/* The operation that move `move` of a frame linearizes: -1 if there is none by that number; for a
 * class, *class is set and any of its members will do. */
static int32_t operation_of(const depth *d, const frame *f, int32_t move, int32_t *class)
{
    const problem *p = d->p;
    *class = -1;
    if (move < d->near) {
        int32_t e = f->e + move;
        if (e >= p->returns || p->order[e] >= p->called[f->e])
            return -1;
        int32_t op = p->order[e];
        return mask_has(&f->done, p->place[op]) || has_earlier_twin(d, f, op) ? -1 : op;
    }
    move -= d->near;
    if (move < p->slots) {
        if (!mask_has(&d->now.live, move) || mask_has(&f->done, move))
            return -1;
        int32_t op = d->now.at.slot_op[move], last = f->e + d->near - 1;
        int tried = last >= p->returns || p->ops->ret[op] <= p->ops->ret[p->order[last]];
        return tried || has_earlier_twin(d, f, op) ? -1 : op;
    }
    move -= p->slots;
    int32_t available = d->now.at.available[move];
    if (!available || used_count(&d->used, f->used, move) >= available ||
        waits_in_slot(d, f, p->class_kind[move]))
        return -1;
    *class = move;
    return p->members[p->class_start[move]];
}

/* Tries the frame's next move: GOES_ON, or how it all ended. */
static int try_move(depth *d, frame *f)
{
    int32_t class, move = f->move, op = operation_of(d, f, move, &class);
    if (op < 0) {
        f->move++;
        return GOES_ON;
    }
    int32_t next = shl_next(d->p->table, f->state, d->p->ops->kind[op]);
    if (next <= SHL_FIRST_LIST) {
        const shl_list *list = shl_list_of(d->p->table, next);
        next = list->states[f->branch++];
        if (f->branch == list->count) {
            f->branch = 0;
            f->move++;
        }
    } else {
        f->move++;
    }
    if (next == SHL_ASK_FAILED)
        return STOPPED;
    if (next < 0 || (class >= 0 && next == f->state))
        return GOES_ON;
    mask done = f->done;
    int32_t used = f->used;
    if (class < 0)
        mask_set(&done, d->p->place[op]);
    else if ((used = used_add(&d->used, used, class)) < 0)
        return STOPPED;
    return descend(d, done, next, used);
}

static int backtrack(depth *d)
{
    frame *f = &d->frames[--d->frame_count];
    if (!bury(d, f))
        return STOPPED;
    if (d->frame_count == 0)
        return NO_WITNESS;
    while (d->now.at.e > d->frames[d->frame_count - 1].e)
        view_backward(&d->now, d->p);
    return GOES_ON;
}

static int depth_run(void *memory, int64_t steps)
{
    depth *d = memory;
    int32_t moves = d->near + d->p->slots + d->p->classes;
    for (int64_t step = 1; d->ended == GOES_ON && step <= steps; step++) {
        frame *f = &d->frames[d->frame_count - 1];
        d->ended = f->move < moves ? try_move(d, f) : backtrack(d);
        if (step % 1024 == 0) {
            d->p->budget->steps += 1024;
            d->p->budget->done = d->reached;
            if (shl_check_budget(d->p->budget))
                d->ended = STOPPED;
        }
    }
    return d->ended;
}

static void depth_free(void *memory)
{
    depth *d = memory;
    if (!d)
        return;
    shl_budget *budget = d->p->budget;
    walker_free(&d->now.at, d->p);
    used_free(&d->used);
    shl_free(budget, d->frames, d->frame_room * (int64_t)sizeof *d->frames);
    shl_free(budget, d->dead, d->dead_room * (int64_t)sizeof *d->dead);
    shl_free(budget, d->table, d->slots * (int64_t)sizeof *d->table);
    shl_free(budget, d, sizeof *d);
}

static depth *depth_make(const problem *p)
{
    depth *d = shl_alloc_zeroed(p->budget, sizeof *d);
    if (!d)
        return NULL;
    d->p = p;
    d->near = p->slots * 4 < p->returns ? p->slots * 4 : p->returns;
    if (!view_init(&d->now, p) || !used_init(&d->used, p->classes, p->budget)) {
        depth_free(d);
        return NULL;
    }
    view_forward(&d->now, p);
    return d;
}

static void *depth_new(const problem *p)
{
    depth *d = depth_make(p);
    if (d) {
        mask nothing;
        memset(&nothing, 0, sizeof nothing);
        d->ended = descend(d, nothing, 0, 0);
    }
    return d;
}

static int32_t depth_reached(const void *memory)
{
    return ((const depth *)memory)->reached;
}

static int64_t depth_configurations(const void *memory)
{
    const depth *d = memory;
    return d->frame_count + d->dead_count;
}

#endif
