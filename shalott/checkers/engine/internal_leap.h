/* Leaps, in one width: depth first, where it is stuck, goes on behind what it is stuck in.
 *
 * What is hard is mostly short, but depth first tries all that can go wrong there, again for each
 * wrong choice before it. So it steps back to a configuration of its path from before the hard part
 * and goes through that part return by return, breadth first, from this configuration alone. If
 * none is left, the configuration is a dead end, and it steps back further; else it goes on from
 * one that is left. (Ours; a leap is to a path what a window is to all states.) */
#ifndef SHL_INTERNAL_LEAP_H
#define SHL_INTERNAL_LEAP_H

#include "internal_depth.h"
#include "internal_layers.h"

/* The view goes back to the frame's return, and what was listed above it is forgotten. */
static void fall_back(depth *d, int64_t at)
{
    d->frame_count = at + 1;
    d->move_count = d->frames[at].moves;
    d->frames[at].stage = 0;
    while (d->now.at.e > d->frames[at].e)
        view_backward(&d->now, d->p);
}

/* Layers with one configuration, which stands before the return that the view stands before. */
static layers *layers_from(depth *d, const frame *f)
{
    const problem *p = d->p;
    layers *l = layers_make(p);
    if (!l)
        return NULL;
    config start = {.done = f->done, .state = f->state, .trail = -1, .last_kind = NO_STEP};
    view_copy(&l->now, &d->now, p);
    while (l->now.at.e > f->e)
        view_backward(&l->now, p);
    if (p->classes)
        memset(l->counted, 1, (size_t)p->classes);
    l->uncounted = 0;
    for (int32_t class = 0; class < p->classes && start.used >= 0; class++)
        for (int32_t i = used_count(&d->used, f->used, class); i > 0 && start.used >= 0; i--)
            start.used = used_add(&l->used, start.used, class);
    if (start.used < 0 || !set_add(l, &l->layer, &start)) {
        layers_free(l);
        return NULL;
    }
    return l;
}

/* The same crashed operations as the path's map tells them; -1: no memory. */
static int32_t used_in_depth(depth *d, const layers *l, int32_t used)
{
    int32_t found = 0;
    for (int32_t class = 0; class < d->p->classes && found >= 0; class++)
        for (int32_t i = used_count(&l->used, used, class); i > 0 && found >= 0; i--)
            found = used_add(&d->used, found, class);
    return found;
}

/* Goes on from one of those that are left. */
static int land(depth *d, const layers *l, int64_t at)
{
    fall_back(d, at);
    int64_t frames = d->frame_count;
    int ended = GOES_ON;
    for (int32_t i = 0; i < l->layer.count && ended == GOES_ON && d->frame_count == frames; i++) {
        const config *c = &l->layer.configs[i];
        int32_t used = used_in_depth(d, l, c->used);
        if (used < 0)
            return STOPPED;
        while (d->now.at.e < l->now.at.e)
            view_forward(&d->now, d->p);
        ended = descend(d, c->done, c->state, used);
    }
    if (ended == GOES_ON && d->frame_count == frames) /* all of them are known to be dead */
        while (d->now.at.e > d->frames[at].e)
            view_backward(&d->now, d->p);
    return ended;
}

/* From `back` returns before the one where it is stuck to `ahead` behind it, in at most so many
 * steps. GOES_ON: it leapt, or found a dead end; UNCLEAR: it takes more steps. */
static int depth_leap(void *memory, int32_t back, int32_t ahead, int64_t steps)
{
    depth *d = memory;
    const problem *p = d->p;
    int64_t at = d->frame_count - 1;
    while (at > 0 && d->frames[at].e > d->reached - back)
        at--;
    int32_t to = d->reached < p->returns - ahead ? d->reached + ahead : p->returns;
    layers *l = layers_from(d, &d->frames[at]);
    if (!l)
        return d->ended = STOPPED;
    int ended = GOES_ON;
    while (ended == GOES_ON && l->now.at.e < to)
        ended = l->steps < steps ? pass_return(l, steps, INT64_MAX) : UNCLEAR;
    p->budget->steps += l->steps;
    if (ended == NO_WITNESS) {
        d->reached = l->stuck > d->reached ? l->stuck : d->reached;
        fall_back(d, at);
        ended = backtrack(d);
    } else if (ended == GOES_ON) {
        d->reached = to > d->reached ? to : d->reached;
        ended = to == p->returns ? WITNESS : land(d, l, at);
    }
    layers_free(l);
    if (ended != UNCLEAR)
        d->ended = ended;
    return ended;
}

#endif
