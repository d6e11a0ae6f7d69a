/* Return by return, in one width: Lowe's just-in-time linearization, breadth first.
 *
 * A layer is every configuration that may stand before return e. At that return, configurations
 * in which its operation is done go on; from the others all sequences of pending operations are
 * tried that end with it. Nothing is linearized before some return needs it. An empty layer is
 * proof that there is no linearization, and its return is where it shows first.
 *
 * Crashed operations are what makes this explode: each may take effect at any later time, or
 * never. So a class of them is first taken to be without limit once one was called (where that
 * leads to few states only): more histories pass, but one that does not is certainly wrong. When
 * a history passes, the classes that its survivor used more often than they were there are
 * counted from then on, and all starts again (refinement of an abstraction by counterexamples:
 * Clarke et al., CAV 2000). In the end either no layer is empty and nothing was overdrawn, which
 * is a witness, or a layer is empty, which is a proof.
 *
 * A window starts with every state of the model instead of the initial one, and takes operations
 * pending at its start to be done already, perhaps: again more pass, and an empty layer is a
 * proof. */
#ifndef SHL_INTERNAL_LAYERS_H
#define SHL_INTERNAL_LAYERS_H

#include "internal_mask.h"

/* Sets of configurations, in one width, that keep only those which no other makes superfluous: what
 * layers are made of. */

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
    mask may_wait;  /* what need not be done as much as in another, unless that needs it */
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

static mask hard_part(const layers *l, const config_set *set, const mask *done)
{
    mask hard = mask_minus(*done, &l->better_done);
    hard = mask_minus(hard, &set->may_wait);
    return mask_minus(hard, &l->better_open);
}

static uint64_t *set_find(const layers *l, const config_set *set, const mask *done, int32_t state)
{
    mask hard = hard_part(l, set, done);
    uint64_t around = (uint64_t)set->slots - 1;
    uint64_t at = mask_hash(&hard, (uint64_t)(uint32_t)state * 0xd6e8feb86659fd93u) & around;
    for (;; at = (at + 1) & around) {
        uint64_t entry = set->table[at];
        if (entry >> 32 != set->stamp)
            return &set->table[at];
        const config *there = &set->configs[(uint32_t)entry - 1];
        if (there->state == state) {
            mask other = hard_part(l, set, &there->done);
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

/* What a configuration must have to do all that b can.
 *
 * Of those that are opened within one return it must need no more steps to it than b, or each might
 * be left out for the other: so what waits there must be able to wait until after it. */
typedef struct {
    const config *b;
    mask needed, more, fewer; /* what it has done; where it has done as much; or as little */
} demand;

static demand demand_of(const layers *l, const config_set *set, const config *b)
{
    demand of = {.b = b};
    if (l->p->seen && set == &l->next) {
        int32_t slot = l->p->place[l->p->order[l->now.at.e]];
        mask left = mask_minus(l->now.live, &b->done);
        left = mask_minus(left, &l->better_open);
        mask_clear(&left, slot); /* it is done with */
        of.needed = needs(&l->now, l->p, &b->done, &left, b->state);
        of.needed = mask_minus(of.needed, &l->better_open);
    }
    of.more = mask_minus(l->better_done, &set->may_wait);
    of.fewer = mask_or(l->better_open, &set->may_wait);
    of.fewer = mask_minus(of.fewer, &l->better_done);
    return of;
}

static int meets(const layers *l, const demand *of, const config *a)
{
    return mask_within(&of->b->done, &a->done, &of->more) &&
           mask_within(&a->done, &of->b->done, &of->fewer) &&
           mask_within(&of->needed, &a->done, &of->needed) &&
           used_within(&l->used, a->used, of->b->used);
}

/* Adds a configuration unless one is there that can do all that it can. 0: no memory. */
static int set_add(layers *l, config_set *set, const config *added)
{
    if (!set_grow(l, set))
        return 0;
    uint64_t *entry = set_find(l, set, &added->done, added->state);
    int32_t newest = -1;
    if (*entry >> 32 == set->stamp) {
        newest = (int32_t)(uint32_t)*entry - 1;
        demand of = demand_of(l, set, added);
        for (int32_t at = newest; at >= 0; at = set->configs[at].older)
            if (meets(l, &of, &set->configs[at]))
                return 1;
    } else {
        set->keys++;
    }
    set->configs[set->count] = *added;
    set->configs[set->count].older = newest;
    *entry = (uint64_t)set->stamp << 32 | (uint64_t)++set->count;
    return 1;
}

/* --- layers -----------------------------------------------------------------------------------*/

/* The pending reads that are legal in a state; the view stands still while a return is worked
 * on. */
static const mask *legal_reads(layers *l, int32_t state)
{
    reads_of_state *cached = &l->cache[state & (CACHED_STATES - 1)];
    if (cached->e == l->now.at.e && cached->state == state)
        return &cached->legal;
    memset(&cached->legal, 0, sizeof cached->legal);
    if (settle_pure(&l->now, l->p, &cached->legal, state) < 0)
        return NULL;
    cached->e = l->now.at.e;
    cached->state = state;
    return &cached->legal;
}

/* A configuration in which the returning operation is done goes to the next layer, another one is
 * opened. What remembers its last step may only do so if no read took effect after it: that read
 * would be missed by the exchange below. */
static int arrive(layers *l, config *c, int32_t returning)
{
    const mask *legal = legal_reads(l, c->state);
    if (!legal)
        return STOPPED;
    mask done = mask_or(c->done, legal);
    if (!mask_equal(&done, &c->done))
        c->last_kind = NO_STEP;
    c->done = done;
    int32_t slot = l->p->place[returning];
    if (!mask_has(&c->done, slot))
        return set_add(l, &l->open, c) ? GOES_ON : STOPPED;
    mask_clear(&c->done, slot);
    c->last_kind = NO_STEP;
    return set_add(l, &l->next, c) ? GOES_ON : STOPPED;
}

/* Is the returning operation as good before the last step as after it? Then this way of doing both
 * is found again later, when something needs that step: laziness loses nothing. */
static int exchanges(layers *l, const config *from, int32_t kind, int32_t state)
{
    if (from->last_kind == NO_STEP)
        return 0;
    int32_t first = shl_next(l->p->table, from->last_state, kind);
    return first >= 0 && shl_next(l->p->table, first, from->last_kind) == state;
}

static int32_t add_trail(layers *l, int32_t older, int32_t class)
{
    if (l->trail_count == l->trail_room) {
        int32_t room = l->trail_room ? l->trail_room * 2 : FIRST_CONFIGS;
        trail_step *more =
            shl_resize(l->p->budget, l->trail, l->trail_room * (int64_t)sizeof *more,
                       room * (int64_t)sizeof *more);
        if (!more)
            return -1;
        l->trail = more;
        l->trail_room = room;
    }
    l->trail[l->trail_count] = (trail_step){older, class, l->now.at.e};
    return l->trail_count++;
}

static int outcome(layers *l, const config *from, int32_t op, int32_t class, int32_t state,
                   int32_t returning)
{
    config c = *from;
    c.state = state;
    c.last_state = from->state;
    c.last_kind = l->p->ops->kind[op];
    if (class < 0)
        mask_set(&c.done, l->p->place[op]);
    else if (state == from->state)
        return GOES_ON;
    else if (l->counted[class])
        c.used = used_add(&l->used, c.used, class);
    else if ((c.trail = add_trail(l, from->trail, class)) < 0)
        return STOPPED;
    if (c.used < 0)
        return STOPPED;
    if (op == returning && exchanges(l, from, c.last_kind, state))
        return GOES_ON;
    return arrive(l, &c, returning);
}

static int apply(layers *l, const config *from, int32_t op, int32_t class, int32_t returning)
{
    l->steps++;
    int32_t next = shl_next(l->p->table, from->state, l->p->ops->kind[op]);
    if (next == SHL_ASK_FAILED)
        return STOPPED;
    if (next >= 0)
        return outcome(l, from, op, class, next, returning);
    int ended = GOES_ON;
    if (next <= SHL_FIRST_LIST) {
        const shl_list *list = shl_list_of(l->p->table, next);
        for (int32_t b = 0; b < list->count && ended == GOES_ON; b++)
            ended = outcome(l, from, op, class, list->states[b], returning);
    }
    return ended;
}

/* Does a pending operation of this kind wait that returns before `ret`? It goes first: the two
 * could be exchanged in any linearization. (Not one that a window took to be optional: it may be
 * done already, and then there is nothing to exchange with.) */
static int twin_waits(const layers *l, const config *c, int32_t kind, int32_t ret)
{
    int32_t slot;
    mask waiting = mask_minus(l->now.live, &c->done);
    waiting = mask_minus(waiting, &l->better_open);
    FOR_EACH(slot, waiting)
    {
        int32_t other = l->now.at.slot_op[slot];
        if (l->p->ops->kind[other] == kind && l->p->ops->ret[other] < ret)
            return 1;
    }
    return 0;
}

static int is_there(const layers *l, const config *c, int32_t class)
{
    int32_t available = l->now.at.available[class];
    return available && !(l->counted[class] && used_count(&l->used, c->used, class) >= available);
}

/* Can a weaker class, or a pending operation of its kind, do the same here? (One that is counted
 * does not go before one that has no limit.) */
static int weaker_does_it(const layers *l, const config *c, int32_t class)
{
    const problem *p = l->p;
    int32_t next = shl_next(p->table, c->state, p->class_kind[class]);
    for (uint64_t bits = p->weaker && next >= 0 ? p->weaker[class] : 0; bits; bits &= bits - 1) {
        int32_t other = __builtin_ctzll(bits), kind = p->class_kind[other];
        if (shl_next(p->table, c->state, kind) != next || (l->counted[other] && !l->counted[class]))
            continue;
        if (is_there(l, c, other) || twin_waits(l, c, kind, SHL_NEVER))
            return 1;
    }
    return 0;
}

static int expand(layers *l, const config *c, int32_t returning)
{
    const problem *p = l->p;
    mask waiting = mask_minus(l->now.live, &c->done);
    waiting = mask_minus(waiting, &l->now.pure);
    int32_t slot;
    FOR_EACH(slot, waiting)
    {
        int32_t op = l->now.at.slot_op[slot];
        if (op != returning && twin_waits(l, c, p->ops->kind[op], p->ops->ret[op]))
            continue;
        int ended = apply(l, c, op, -1, returning);
        if (ended != GOES_ON)
            return ended;
    }
    for (int32_t class = 0; class < p->classes; class++) {
        if (!is_there(l, c, class) || twin_waits(l, c, p->class_kind[class], SHL_NEVER)
            || weaker_does_it(l, c, class))
            continue;
        int ended = apply(l, c, p->members[p->class_start[class]], class, returning);
        if (ended != GOES_ON)
            return ended;
    }
    return GOES_ON;
}

/* What may wait beyond this return, for one that is called after it. (In the next layer: for any
 * that is left; see demand_of.) */
static void find_who_may_wait(layers *l)
{
    certain by;
    int32_t slot;
    if (!l->p->seen)
        return;
    l->next.may_wait = l->open.may_wait = mask_or(l->now.resets, &l->now.pure);
    foresee_calls(&l->now, l->p, &by);
    FOR_EACH(slot, l->next.may_wait)
        if (!may_wait(l->p, l->now.at.slot_op[slot], &by))
            mask_clear(&l->open.may_wait, slot);
}

/* What is better done: reads (they change nothing), and what a class without limit can do again. */
static void weigh_slots(layers *l)
{
    const problem *p = l->p;
    l->better_done = mask_minus(l->now.pure, &l->better_open);
    if (!l->uncounted)
        return;
    mask rest = mask_minus(l->now.live, &l->now.pure);
    rest = mask_minus(rest, &l->better_open);
    int32_t slot;
    FOR_EACH(slot, rest)
    {
        int32_t class = p->class_of[p->ops->kind[l->now.at.slot_op[slot]]];
        if (class >= 0 && !l->counted[class] && l->now.at.available[class])
            mask_set(&l->better_done, slot);
    }
}

/* Begins with return e, before which the view stands: who has done it already. */
static int enter_return(layers *l)
{
    int32_t returning = l->p->order[l->now.at.e], slot = l->p->place[returning];
    int optional = mask_has(&l->better_open, slot), ended = GOES_ON;
    set_clear(&l->next);
    set_clear(&l->open);
    weigh_slots(l);
    find_who_may_wait(l);
    for (int32_t i = 0; i < l->layer.count && ended == GOES_ON; i++) {
        config c = l->layer.configs[i];
        c.last_kind = NO_STEP;
        if (optional && !mask_has(&c.done, slot) && !set_add(l, &l->next, &c))
            return STOPPED;
        ended = arrive(l, &c, returning);
        if (++l->steps % 4096 == 0 && shl_check_budget(l->p->budget))
            ended = STOPPED;
    }
    l->expanded = 0;
    l->within = ended == GOES_ON;
    return ended;
}

/* Works on return e. It pauses within it when so many steps were taken in all; then `within` is
 * set. Within it, up to `most_open` configurations are opened; 0: any number. */
static int pass_return(layers *l, int64_t most_open, int64_t pause_at)
{
    int32_t returning = l->p->order[l->now.at.e], slot = l->p->place[returning];
    int ended = l->within ? GOES_ON : enter_return(l);
    while (l->expanded < l->open.count && ended == GOES_ON) {
        if (l->steps >= pause_at)
            return GOES_ON;
        config c = l->open.configs[l->expanded++];
        ended = expand(l, &c, returning);
        if (most_open && l->open.count + l->next.count > most_open)
            ended = UNCLEAR;
        if (l->expanded % 256 == 0 && shl_check_budget(l->p->budget))
            ended = STOPPED;
    }
    if (ended != GOES_ON)
        return ended;
    l->within = 0;
    if (l->next.count == 0) {
        l->stuck = l->now.at.e;
        return NO_WITNESS;
    }
    mask_clear(&l->better_open, slot);
    config_set passed = l->layer;
    l->layer = l->next;
    l->next = passed;
    l->most = l->layer.count > l->most ? l->layer.count : l->most;
    view_forward(&l->now, l->p);
    return GOES_ON;
}

static int layers_begin(layers *l, int32_t state)
{
    config start;
    memset(&start, 0, sizeof start);
    start.state = state;
    start.trail = -1;
    start.last_kind = NO_STEP;
    return set_add(l, &l->layer, &start);
}

static void layers_free(void *memory)
{
    layers *l = memory;
    if (!l)
        return;
    shl_budget *budget = l->p->budget;
    walker_free(&l->now.at, l->p);
    used_free(&l->used);
    set_free(&l->layer, budget);
    set_free(&l->next, budget);
    set_free(&l->open, budget);
    shl_free(budget, l->trail, l->trail_room * (int64_t)sizeof *l->trail);
    shl_free(budget, l->counted, l->p->classes);
    shl_free(budget, l, sizeof *l);
}

static layers *layers_make(const problem *p)
{
    layers *l = shl_alloc_zeroed(p->budget, sizeof *l);
    if (!l)
        return NULL;
    l->p = p;
    l->stuck = -1;
    l->uncounted = p->state_count < 0 ? 0 : p->classes;
    l->counted = shl_alloc_zeroed(p->budget, p->classes);
    if (l->counted && !l->uncounted)
        memset(l->counted, 1, (size_t)p->classes);
    set_clear(&l->layer); /* stamps begin at 1: an empty table is all zeros */
    for (int i = 0; i < CACHED_STATES; i++)
        l->cache[i].e = -1;
    if (!l->counted || !view_init(&l->now, p) || !used_init(&l->used, p->classes, p->budget)) {
        layers_free(l);
        return NULL;
    }
    view_forward(&l->now, p);
    return l;
}

#endif
