/* The longest partial linearizations of a small history, in one width: for people, when a history
 * is not linearizable. The same moves as depth first, one operation a frame, and every
 * configuration visited once; a read that is legal is the only move, so that sequences do not
 * differ by reads. */
#ifndef SHL_INTERNAL_LONGEST_H
#define SHL_INTERNAL_LONGEST_H

#include "internal_depth.h"

typedef struct {
    depth *d;
    int32_t *path; /* path[i]: the operation that led to frame i; -1 for the first */
    int64_t path_room;
    int32_t most, found, best;
    int32_t *order, *lengths, *states;
} longest;

static int32_t linearized(const frame *f)
{
    int32_t count = f->e;
    for (int i = 0; i < WORDS; i++)
        count += __builtin_popcountll(f->done.w[i]);
    return count;
}

static void record(longest *s)
{
    const depth *d = s->d;
    const frame *f = &d->frames[d->frame_count - 1];
    int32_t length = linearized(f);
    if (length > s->best) {
        s->best = length;
        s->found = 0;
    }
    if (length < s->best || s->found == s->most)
        return;
    int32_t *order = s->order + (int64_t)s->found * d->p->ops->n, written = 0;
    for (int64_t i = 1; i < d->frame_count; i++)
        order[written++] = s->path[i];
    s->lengths[s->found] = written;
    s->states[s->found++] = f->state;
}

static int extend_path(longest *s, int32_t op)
{
    depth *d = s->d;
    if (d->frame_count >= s->path_room) {
        int64_t room = s->path_room ? s->path_room * 2 : FIRST_FRAMES;
        int32_t *more = shl_resize(d->p->budget, s->path, s->path_room * (int64_t)sizeof *more,
                                   room * (int64_t)sizeof *more);
        if (!more)
            return 0;
        s->path = more;
        s->path_room = room;
    }
    s->path[d->frame_count] = op;
    return 1;
}

static int visit(longest *s, int32_t op, mask done, int32_t state, int32_t used)
{
    depth *d = s->d;
    const problem *p = d->p;
    int32_t e = d->now.at.e, from = e;
    while (e < p->returns && mask_has(&done, p->place[p->order[e]])) {
        mask_clear(&done, p->place[p->order[e++]]);
        view_forward(&d->now, p);
    }
    if (is_dead(d, &done, state, used, e)) {
        while (e-- > from)
            view_backward(&d->now, p);
        return GOES_ON;
    }
    frame f = {done, state, used, e, 0, d->move_count};
    if (!grow_frames(d) || !extend_path(s, op) || !bury(d, &f))
        return STOPPED;
    d->frames[d->frame_count++] = f;
    record(s);
    return GOES_ON;
}

/* A read that is legal now, or -1. */
static int32_t forced(const depth *d, const frame *f)
{
    int32_t slot;
    mask waiting = mask_minus(d->now.pure, &f->done);
    FOR_EACH(slot, waiting)
    {
        int32_t op = d->now.at.slot_op[slot];
        if (shl_next(d->p->table, f->state, d->p->ops->kind[op]) == f->state)
            return op;
    }
    return -1;
}

static int visit_next(longest *s, const frame *f)
{
    depth *d = s->d;
    move next = d->moves[--d->move_count];
    mask done = f->done;
    int32_t used = f->used;
    if (next.class < 0)
        mask_set(&done, d->p->place[next.op]);
    else if ((used = used_add(&d->used, used, next.class)) < 0)
        return STOPPED;
    return visit(s, next.op, done, next.next, used);
}

/* Lists what a frame can do next. 0: no memory, or the model failed. */
static int list_visits(depth *d, frame *f)
{
    int32_t op = f->stage == 0 ? forced(d, f) : -1;
    if (op < 0)
        return list_more(d, f);
    f->stage = STAGES;
    return add_move(d, op, -1, f->state, 0);
}

static int visit_all(longest *s)
{
    depth *d = s->d;
    for (int64_t step = 1; d->frame_count; step++) {
        frame *f = &d->frames[d->frame_count - 1];
        if (d->move_count > f->moves) {
            if (visit_next(s, f) == STOPPED)
                return 0;
        } else if (f->e < d->p->returns && f->stage < STAGES) {
            if (!list_visits(d, f))
                return 0;
        } else if (--d->frame_count) {
            while (d->now.at.e > d->frames[d->frame_count - 1].e)
                view_backward(&d->now, d->p);
        }
        if (step % 1024 == 0 && shl_check_budget(d->p->budget))
            return 0;
    }
    return 1;
}

static int32_t find_longest(const problem *p, int32_t most, int32_t *order, int32_t *lengths,
                            int32_t *states)
{
    longest s = {.most = most, .best = -1, .order = order, .lengths = lengths, .states = states};
    s.d = depth_make(p);
    if (!s.d)
        return -1;
    mask nothing;
    memset(&nothing, 0, sizeof nothing);
    int complete = visit(&s, -1, nothing, 0, 0) == GOES_ON && visit_all(&s);
    shl_free(p->budget, s.path, s.path_room * (int64_t)sizeof *s.path);
    depth_free(s.d);
    return complete || s.found ? s.found : -1;
}

#endif
