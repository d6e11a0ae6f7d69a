/* Depth first, in one width: Wing and Gong's search with Lowe's memory of configurations.
 *
 * A configuration stands before return e: everything that returned earlier is linearized, `done`
 * says which pending operations are, too, and `used` how many crashed ones. A move linearizes one
 * more operation; then every return whose operation is done is passed. Moves are tried in the order
 * in which the operations return. Only configurations that led nowhere are remembered (nothing is
 * ever met twice on one path: moves only add), so a history that is linearizable needs next to no
 * memory. */
#ifndef SHL_INTERNAL_DEPTH_H
#define SHL_INTERNAL_DEPTH_H

#include "internal_mask.h"

/* Depth first, in one width: what it holds, and the configurations that are known to lead nowhere.
 *
 * A dead configuration also rules out those that can do no more than it: the same but for fewer
 * reads done, more crashed operations used up, or what could as well wait (see `needs`). */

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

/* What is done but for reads and resets. */
static mask hard_to_have(const depth *d, const mask *done)
{
    mask hard = mask_minus(*done, &d->now.pure);
    return mask_minus(hard, &d->now.resets);
}

static uint32_t dead_hash(const depth *d, const mask *done, int32_t state, int32_t e)
{
    mask hard = hard_to_have(d, done);
    uint64_t hash = ((uint64_t)(uint32_t)e << 32 | (uint32_t)state) * 0xd6e8feb86659fd93u;
    return (uint32_t)(mask_hash(&hard, hash ^ hash >> 32) >> 16);
}

static int same_key(const depth *d, const dead_end *dead, const mask *done, int32_t state,
                    int32_t e)
{
    if (dead->e != e || dead->state != state)
        return 0;
    mask a = hard_to_have(d, &dead->done), b = hard_to_have(d, done);
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
    if (at < 0)
        return 0;
    mask left = mask_minus(d->now.live, done);
    mask needed = needs(&d->now, d->p, done, &left, state);
    for (int look = 0; at >= 0 && look < CHAIN_LOOK; look++, at = d->dead[at].older) {
        const dead_end *dead = &d->dead[at];
        if (mask_within(&needed, &dead->done, &needed) &&
            mask_within(&dead->done, done, &d->now.resets) &&
            used_within(&d->used, dead->used, used))
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

/* --- the search -------------------------------------------------------------------------------*/

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
    d->frames[d->frame_count++] = (frame){done, state, used, e, 0, d->move_count};
    return GOES_ON;
}

static int add_move(depth *d, int32_t op, int32_t class, int32_t next, int32_t rank)
{
    if (d->move_count == d->move_room) {
        int64_t room = d->move_room ? d->move_room * 2 : FIRST_FRAMES;
        move *more = shl_resize(d->p->budget, d->moves, d->move_room * (int64_t)sizeof *more,
                                room * (int64_t)sizeof *more);
        if (!more)
            return 0;
        d->moves = more;
        d->move_room = room;
    }
    d->moves[d->move_count++] = (move){op, class, next, rank};
    return 1;
}

/* Does this outcome let the operation that must return next take effect? Such moves come first: the
 * less is linearized before it is needed, the more is left to choose from. */
static int enables(const depth *d, const frame *f, int32_t next)
{
    int32_t returning = d->p->order[f->e];
    return shl_next(d->p->table, next, d->p->ops->kind[returning]) != SHL_ILLEGAL;
}

/* Lists the outcomes of one operation. 0: no memory, or the model failed. */
static int list_outcomes(depth *d, const frame *f, int32_t op, int32_t class)
{
    const problem *p = d->p;
    int32_t next = shl_next(p->table, f->state, p->ops->kind[op]), one[1] = {next};
    const int32_t *states = one;
    int32_t count = 1;
    if (next == SHL_ASK_FAILED)
        return 0;
    if (next <= SHL_FIRST_LIST) {
        const shl_list *list = shl_list_of(p->table, next);
        states = list->states;
        count = list->count;
    }
    for (int32_t i = 0; i < count; i++) {
        if (states[i] < 0 || (class >= 0 && states[i] == f->state))
            continue;
        int32_t rank = p->ops->ret[op] / 2;
        if (!enables(d, f, states[i]))
            rank += SHL_NEVER / 2;
        else if (d->needy[p->ops->kind[op]]) /* what is always possible is kept for later */
            rank -= SHL_NEVER / 4;
        if (!add_move(d, op, class, states[i], rank))
            return 0;
    }
    return 1;
}

/* Pending operations but the one that returns next. Of those of one kind only the one that returns
 * first, for in any linearization two of them could be exchanged. */
static int list_pending(depth *d, const frame *f)
{
    const problem *p = d->p;
    int32_t slot, returning = p->order[f->e];
    mask waiting = mask_minus(d->now.live, &f->done);
    waiting = mask_minus(waiting, &d->now.pure);
    FOR_EACH(slot, waiting)
    {
        int32_t op = d->now.at.slot_op[slot], *first = &d->earliest[p->ops->kind[op]];
        if (*first < 0 || p->ops->ret[op] < p->ops->ret[*first])
            *first = op;
    }
    int ok = 1;
    FOR_EACH(slot, waiting)
    {
        int32_t op = d->now.at.slot_op[slot];
        if (ok && op != returning && d->earliest[p->ops->kind[op]] == op)
            ok = list_outcomes(d, f, op, -1);
    }
    FOR_EACH(slot, waiting)
        d->earliest[p->ops->kind[d->now.at.slot_op[slot]]] = -1;
    return ok;
}

static int waits(const depth *d, const frame *f, int32_t kind)
{
    int32_t slot;
    mask waiting = mask_minus(d->now.live, &f->done);
    FOR_EACH(slot, waiting)
        if (d->p->ops->kind[d->now.at.slot_op[slot]] == kind)
            return 1;
    return 0;
}

static int is_left(const depth *d, const frame *f, int32_t class)
{
    int32_t available = d->now.at.available[class];
    return available && used_count(&d->used, f->used, class) < available;
}

/* Can a weaker class, or a pending operation of its kind, do the same here? */
static int weaker_goes_first(const depth *d, const frame *f, int32_t class)
{
    const problem *p = d->p;
    int32_t next = shl_next(p->table, f->state, p->class_kind[class]);
    for (uint64_t bits = p->weaker && next >= 0 ? p->weaker[class] : 0; bits; bits &= bits - 1) {
        int32_t other = __builtin_ctzll(bits), kind = p->class_kind[other];
        if (shl_next(p->table, f->state, kind) == next
            && (is_left(d, f, other) || waits(d, f, kind)))
            return 1;
    }
    return 0;
}

/* Crashed operations, unless one of the same kind is pending: that one can do the same now, and the
 * crashed one if that part comes later. */
static int list_crashed(depth *d, const frame *f)
{
    const problem *p = d->p;
    int ok = 1;
    for (int32_t class = 0; ok && class < p->classes; class++) {
        if (!is_left(d, f, class) || waits(d, f, p->class_kind[class])
            || weaker_goes_first(d, f, class))
            continue;
        int32_t used = used_count(&d->used, f->used, class);
        ok = list_outcomes(d, f, p->members[p->class_start[class] + used], class);
    }
    return ok;
}

/* Sorts a frame's moves so that the next one is the last. */
static void order_moves(move *moves, int64_t count)
{
    for (int64_t at = 1; at < count; at++) {
        move moved = moves[at];
        int64_t to = at;
        for (; to > 0 && moves[to - 1].rank < moved.rank; to--)
            moves[to] = moves[to - 1];
        moves[to] = moved;
    }
}

/* What the returning operation overwrites is free: pending operations that are legal in few states
 * and whose effect would be gone after it go before it. */
static int list_overwritten(depth *d, const frame *f)
{
    const problem *p = d->p;
    int32_t slot, returning = p->order[f->e], kind = p->ops->kind[returning];
    int32_t after = shl_next(p->table, f->state, kind);
    if (after < 0)
        return 1;
    mask waiting = mask_minus(d->now.live, &f->done);
    waiting = mask_minus(waiting, &d->now.pure);
    FOR_EACH(slot, waiting)
    {
        int32_t op = d->now.at.slot_op[slot], own = p->ops->kind[op];
        int32_t next = shl_next(p->table, f->state, own);
        if (next == SHL_ILLEGAL)
            d->needy[own] = 1;
        if (op == returning || next < 0 || !d->needy[own] || next == f->state)
            continue;
        if (shl_next(p->table, next, kind) == after &&
            !add_move(d, op, -1, next, p->ops->ret[op] / 2 - SHL_NEVER / 2))
            return 0;
    }
    return 1;
}

enum { STAGES = 3 };

/* Lists a frame's next stage: the operation that must return next; others pending; crashed ones. */
static int list_more(depth *d, frame *f)
{
    int ok = 1;
    switch (f->stage++) {
    case 0:
        ok = list_outcomes(d, f, d->p->order[f->e], -1) && list_overwritten(d, f);
        break;
    case 1:
        ok = list_pending(d, f);
        break;
    default:
        ok = list_crashed(d, f);
    }
    order_moves(d->moves + f->moves, d->move_count - f->moves);
    return ok;
}

static int try_move(depth *d, const frame *f)
{
    move next = d->moves[--d->move_count];
    mask done = f->done;
    int32_t used = f->used;
    if (next.class < 0)
        mask_set(&done, d->p->place[next.op]);
    else if ((used = used_add(&d->used, used, next.class)) < 0)
        return STOPPED;
    return descend(d, done, next.next, used);
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
    for (int64_t step = 1; d->ended == GOES_ON && step <= steps; step++) {
        frame *f = &d->frames[d->frame_count - 1];
        if (d->move_count > f->moves)
            d->ended = try_move(d, f);
        else if (f->stage == STAGES)
            d->ended = backtrack(d);
        else if (!list_more(d, f))
            d->ended = STOPPED;
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
    shl_free(budget, d->moves, d->move_room * (int64_t)sizeof *d->moves);
    shl_free(budget, d->earliest, d->p->table->kinds * (int64_t)sizeof *d->earliest);
    shl_free(budget, d->needy, d->p->table->kinds);
    shl_free(budget, d->frames, d->frame_room * (int64_t)sizeof *d->frames);
    shl_free(budget, d->dead, d->dead_room * (int64_t)sizeof *d->dead);
    shl_free(budget, d->table, d->slots * (int64_t)sizeof *d->table);
    shl_free(budget, d->same, d->same_slots * (int64_t)sizeof *d->same);
    shl_free(budget, d, sizeof *d);
}

static depth *depth_make(const problem *p)
{
    depth *d = shl_alloc_zeroed(p->budget, sizeof *d);
    if (!d)
        return NULL;
    d->p = p;
    int64_t earliest = p->table->kinds * (int64_t)sizeof *d->earliest;
    d->earliest = shl_alloc(p->budget, earliest);
    if (d->earliest)
        memset(d->earliest, 0xff, (size_t)earliest);
    d->needy = shl_alloc_zeroed(p->budget, p->table->kinds);
    if (!d->earliest || !d->needy || !view_init(&d->now, p) ||
        !used_init(&d->used, p->classes, p->budget)) {
        depth_free(d);
        return NULL;
    }
    view_forward(&d->now, p);
    return d;
}

/* The future is known now. Dead ends are forgotten: they were found by what is no key any more. */
static int32_t depth_foresee(void *memory)
{
    depth *d = memory;
    if (d->table)
        memset(d->table, 0, (size_t)d->slots * sizeof *d->table);
    if (d->same)
        memset(d->same, 0, (size_t)d->same_slots * sizeof *d->same);
    d->dead_count = d->keys = d->same_count = 0;
    return view_foresee(&d->now, d->p);
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
