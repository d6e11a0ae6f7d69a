/* What layers are run for, in one width: the whole history, again and again until crashed
 * operations are counted well enough; or a window of it (see internal_layers.h). And the table of
 * all searches in this width, for a file that defines WORDS. */
#ifndef SHL_INTERNAL_PASSES_H
#define SHL_INTERNAL_PASSES_H

#include "internal_leap.h"

/* --- all layers --------------------------------------------------------------------------------*/

static void *layers_new(const problem *p)
{
    layers *l = layers_make(p);
    if (l && !layers_begin(l, 0)) {
        layers_free(l);
        return NULL;
    }
    return l;
}

/* How many members of a class were called before return e. */
static int32_t called_before(const problem *p, int32_t class, int32_t e)
{
    int32_t low = p->class_start[class], high = p->class_start[class + 1];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (p->members[middle] < p->called[e])
            low = middle + 1;
        else
            high = middle;
    }
    return low - p->class_start[class];
}

/* Counts, from now on, the classes that a survivor overdrew. Answers how many, -1 without
 * memory. */
static int32_t count_overdrawn(layers *l, const config *survivor)
{
    const problem *p = l->p;
    int32_t steps = 0, overdrawn = 0;
    for (int32_t at = survivor->trail; at >= 0; at = l->trail[at].older)
        steps++;
    int64_t bytes = (int64_t)(steps + p->classes) * (int64_t)sizeof(int32_t);
    int32_t *in_time = shl_alloc_zeroed(p->budget, bytes);
    if (!in_time)
        return -1;
    int32_t *uses = in_time + steps, index = steps;
    for (int32_t at = survivor->trail; at >= 0; at = l->trail[at].older)
        in_time[--index] = at;
    for (; index < steps; index++) {
        const trail_step *step = &l->trail[in_time[index]];
        if (++uses[step->class] > called_before(p, step->class, step->e) &&
            !l->counted[step->class]) {
            l->counted[step->class] = 1;
            overdrawn++;
        }
    }
    shl_free(p->budget, in_time, bytes);
    l->uncounted -= overdrawn;
    return overdrawn;
}

/* Back to the beginning, with what is counted now. */
static int layers_restart(layers *l)
{
    const problem *p = l->p;
    walker_free(&l->now.at, p);
    if (!view_init(&l->now, p))
        return 0;
    view_forward(&l->now, p);
    set_clear(&l->layer);
    l->trail_count = 0;
    for (int i = 0; i < CACHED_STATES; i++)
        l->cache[i].e = -1;
    memset(&l->better_open, 0, sizeof l->better_open);
    return layers_begin(l, 0);
}

static int passed_all(layers *l)
{
    /* Of the survivors, the one with the shortest trail is the likeliest witness. */
    const config *best = &l->layer.configs[0];
    for (int32_t i = 1; i < l->layer.count; i++)
        if (l->layer.configs[i].trail < best->trail)
            best = &l->layer.configs[i];
    config survivor = *best;
    int32_t overdrawn = count_overdrawn(l, &survivor);
    if (overdrawn == 0)
        return WITNESS;
    return overdrawn > 0 && layers_restart(l) ? GOES_ON : STOPPED;
}

static int layers_run(void *memory, int64_t steps)
{
    layers *l = memory;
    int64_t until = l->steps + steps, counted = l->steps;
    for (int32_t turn = 1; l->ended == GOES_ON && l->steps < until; turn++) {
        if (!l->within && l->now.at.e == l->p->returns)
            l->ended = passed_all(l);
        else
            l->ended = pass_return(l, 0, until);
        if (turn % 256 == 0 && l->ended == GOES_ON && shl_check_budget(l->p->budget))
            l->ended = STOPPED;
    }
    l->p->budget->steps += l->steps - counted;
    return l->ended;
}

static int32_t layers_stuck(const void *memory)
{
    return ((const layers *)memory)->stuck;
}

static int layers_exact(const void *memory)
{
    return ((const layers *)memory)->uncounted == 0;
}

static int64_t layers_configurations(const void *memory)
{
    return ((const layers *)memory)->most;
}

/* --- a window ----------------------------------------------------------------------------------*/

enum { SCARCE = 3, FEW_CLASSES = 4 };

static int window_run(layers *l, int32_t to, int64_t steps)
{
    int ended = GOES_ON;
    while (ended == GOES_ON && l->now.at.e <= to && l->now.at.e < l->p->returns)
        ended = l->steps < steps ? pass_return(l, steps, INT64_MAX) : UNCLEAR;
    l->p->budget->steps += l->steps;
    if (ended == UNCLEAR)
        return GOES_ON; /* with more steps it would */
    return ended == GOES_ON ? UNCLEAR : ended;
}

/* None of the crashed operations is used when a window begins: at worst that is too good. Few
 * classes are worth counting there, and a class of few; one of many is as good as without limit. */
static void count_scarce(layers *l, int32_t to)
{
    const problem *p = l->p;
    int32_t last = to < p->returns ? to : p->returns - 1;
    for (int32_t class = 0; class < p->classes; class++)
        if (!l->counted[class] &&
            (p->classes <= FEW_CLASSES || called_before(p, class, last) <= SCARCE)) {
            l->counted[class] = 1;
            l->uncounted--;
        }
}

static int window(const problem *p, int32_t from, int32_t to, int64_t steps, int32_t *stuck)
{
    layers *l = layers_make(p);
    int ended = STOPPED;
    if (!l)
        return ended;
    while (l->now.at.e < from)
        view_forward(&l->now, p);
    count_scarce(l, to);
    /* What was pending may be done: only its effect is of interest, so reads need no slot. */
    if (from > 0)
        l->better_open = mask_minus(l->now.live, &l->now.pure);
    int ok = 1;
    for (int32_t s = 0; ok && s < (from > 0 ? p->state_count : 1); s++)
        ok = layers_begin(l, from > 0 ? p->states[s] : 0);
    if (from > 0)
        for (int32_t i = 0; i < l->layer.count; i++)
            l->layer.configs[i].done = l->now.pure;
    if (ok)
        ended = window_run(l, to, steps);
    *stuck = l->stuck;
    layers_free(l);
    return ended;
}

/* --- all searches in this width ---------------------------------------------------------------*/

const searches SIZED(searches) = {
    .depth_new = depth_new,
    .depth_run = depth_run,
    .depth_foresee = depth_foresee,
    .depth_leap = depth_leap,
    .depth_reached = depth_reached,
    .depth_configurations = depth_configurations,
    .depth_free = depth_free,
    .window = window,
    .layers_new = layers_new,
    .layers_run = layers_run,
    .layers_stuck = layers_stuck,
    .layers_exact = layers_exact,
    .layers_configurations = layers_configurations,
    .layers_free = layers_free,
    .slots_max = WORDS * 64,
};

#endif
