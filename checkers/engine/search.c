/* The general search: which of the three methods works when, and what their answers mean together.
 *
 * Depth first finds a witness soon if there is one, or gets stuck and stays there. Where it is
 * stuck a window is tried: if no state at all before it lets the next returns pass, the history is
 * wrong, and little of it had to be looked at. Layers decide what is left. Turns are of doubling
 * length, and neither windows nor layers have one when they took longer so far than depth first:
 * the whole costs a small multiple of the one that decides. */
#include "internal_abstraction.h"
#include "internal_search.h"

#include <string.h>

enum { FIRST_ALLOWANCE = 4096, FURTHER = 8, WHOLE = INT32_MAX };

typedef struct {
    problem p;
    const searches *by;
    void *depth, *layers;
    abstraction seen;    /* the history through the question of the return that is stuck */
    int32_t at;          /* the return that windows are about */
    int32_t window;      /* how many returns before its call the next one begins */
    int32_t seen_window; /* that of the abstraction */
    int32_t stuck;       /* the first return known to be impassable; -1 */
    shl_found *found;
} search;

static const searches *for_width(int32_t slots)
{
    const searches *widths[] = {&searches_1, &searches_8, &searches_64};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (slots <= widths[i]->slots_max)
            return widths[i];
    return NULL;
}

static void decide(search *s, int32_t verdict, int32_t method)
{
    s->found->verdict = verdict;
    s->found->cause = SHL_DECIDED;
    s->found->method = method;
}

static void stopped(search *s)
{
    int32_t stop = s->p.budget->stopped;
    s->found->cause = s->p.table->failed && !stop ? SHL_MODEL_FAILED : stop ? stop : SHL_MEMORY;
}

/* Takes what a method says. 1: that is the answer. */
static int settled(search *s, int ended, int32_t method, int32_t stuck)
{
    if (ended == WITNESS)
        decide(s, SHL_VALID, method);
    else if (ended == NO_WITNESS) {
        decide(s, SHL_INVALID, method);
        if (stuck >= 0 && (s->stuck < 0 || stuck < s->stuck))
            s->stuck = stuck;
    } else if (ended == STOPPED)
        stopped(s);
    else
        return 0;
    return 1;
}

static int32_t reached(const search *s)
{
    return s->depth ? s->by->depth_reached(s->depth) : 0;
}

/* Returns before the operation was called. */
static int32_t returns_before_call(const problem *p, int32_t op)
{
    int32_t low = 0, high = p->returns;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (p->ops->ret[p->order[middle]] < p->ops->call[op])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Can this operation take effect in no state whatever? */
static int impossible(const problem *p, int32_t op)
{
    for (int32_t s = 0; s < p->state_count; s++)
        if (shl_next(p->table, p->states[s], p->ops->kind[op]) != SHL_ILLEGAL)
            return 0;
    return p->state_count > 0;
}

/* One window, which begins `before` returns before `call`. If everything survived it, the next one
 * begins earlier, unless this one was the whole; if its steps were used up, it needs more of
 * them. */
static int look(search *s, const problem *p, int32_t *before, int32_t call, int32_t to,
                int64_t steps, int32_t *stuck)
{
    if (*before == WHOLE)
        return UNCLEAR;
    int32_t from = call > *before ? call - *before : 0;
    int ended = s->by->window(p, from, to, steps, stuck);
    if (ended == UNCLEAR && from == 0)
        *before = WHOLE;
    else if (ended == UNCLEAR)
        *before = *before > p->returns / 4 ? p->returns : *before * 4 + p->slots;
    return ended;
}

/* Windows around the return where depth first is stuck. */
static int try_window(search *s, int64_t allowance, int32_t *stuck)
{
    int32_t at = reached(s), op = s->p.order[at];
    if (s->p.state_count < 0)
        return UNCLEAR; /* there is no starting from every state */
    if (impossible(&s->p, op)) {
        *stuck = at;
        return NO_WITNESS;
    }
    if (at != s->at) {
        s->at = at;
        s->window = 0;
        s->seen_window = s->p.slots;
    }
    int32_t call = returns_before_call(&s->p, op), to = at + 4 * s->p.slots;
    int built = abstraction_build(&s->seen, &s->p, op), ended = UNCLEAR;
    if (built < 0)
        return STOPPED;
    if (built) /* so little is left of it that it can begin much earlier */
        ended = look(s, &s->seen.p, &s->seen_window, call, to, 2 * allowance, stuck);
    if (ended == UNCLEAR || ended == GOES_ON)
        ended = look(s, &s->p, &s->window, call, to, allowance, stuck);
    return ended;
}

/* The history is not linearizable, but the return where that was seen may not be the first: looks
 * closer while that is cheap. */
static void sharpen(search *s, int64_t allowance)
{
    for (int round = 0; round < 8 && s->stuck > reached(s); round++) {
        int32_t stuck = -1;
        if (s->depth && s->by->depth_run(s->depth, allowance) == NO_WITNESS)
            s->stuck = reached(s);
        else if (try_window(s, allowance, &stuck) == NO_WITNESS && stuck < s->stuck)
            s->stuck = stuck;
        if (s->p.budget->stopped)
            return;
    }
}

/* A method's turns: how many steps the next one has, and how long all of them took. */
typedef struct {
    int64_t steps;
    int64_t spent_ns;
} turns;

/* A turn has ended that began then. Now. */
static int64_t took(turns *mine, int64_t began_ns)
{
    int64_t now_ns = shl_now_ns();
    mine->spent_ns += now_ns - began_ns;
    return now_ns;
}

static void take_turns(search *s, int32_t methods)
{
    turns depth = {FIRST_ALLOWANCE, 0}, window = depth, layers = depth;
    int32_t before = -1, stalled = 0;
    for (int64_t now_ns = shl_now_ns();;) {
        if (methods & SHL_BY_DEPTH) {
            if (!s->depth && !(s->depth = s->by->depth_new(&s->p)))
                return stopped(s);
            int ended = s->by->depth_run(s->depth, depth.steps);
            if (settled(s, ended, SHL_BY_DEPTH, reached(s)))
                return;
            now_ns = took(&depth, now_ns);
            /* While it gets on nobody else works; nor at the first pause, which is often short. */
            stalled = reached(s) > before ? 0 : stalled + 1;
            if (reached(s) - before > FURTHER * s->p.slots) /* what was so hard lies well behind */
                depth.steps = window.steps = FIRST_ALLOWANCE;
            before = reached(s);
            if (stalled < 2)
                continue;
            depth.steps *= 2;
        }
        int32_t stuck = -1;
        if (!s->p.state_count && !problem_list_states(&s->p))
            return stopped(s);
        if ((methods & SHL_BY_WINDOW) && s->depth && window.spent_ns <= depth.spent_ns) {
            int ended = try_window(s, window.steps, &stuck);
            if (settled(s, ended, SHL_BY_WINDOW, stuck)) {
                if (ended == NO_WITNESS)
                    sharpen(s, window.steps);
                return;
            }
            now_ns = took(&window, now_ns);
            window.steps *= 2;
        }
        if ((methods & SHL_BY_LAYERS) &&
            (!s->depth || (stalled > 3 && layers.spent_ns <= depth.spent_ns))) {
            if (!s->layers && !(s->layers = s->by->layers_new(&s->p)))
                return stopped(s);
            int ended = s->by->layers_run(s->layers, layers.steps);
            if (settled(s, ended, SHL_BY_LAYERS, s->by->layers_stuck(s->layers)))
                return;
            now_ns = took(&layers, now_ns);
            layers.steps *= 2;
        }
    }
}

static void report(search *s)
{
    shl_found *found = s->found;
    found->returns = s->p.returns;
    found->reached = found->verdict == SHL_VALID ? s->p.returns : reached(s);
    if (s->stuck >= 0) {
        int exact = s->layers && found->method == SHL_BY_LAYERS && s->by->layers_exact(s->layers);
        found->stuck = s->p.order[s->stuck];
        found->first = exact || s->stuck == reached(s);
    }
    if (s->depth)
        found->configurations = s->by->depth_configurations(s->depth);
    if (s->layers && s->by->layers_configurations(s->layers) > found->configurations)
        found->configurations = s->by->layers_configurations(s->layers);
}

void shl_search(const shl_operations *operations, shl_table *table, int32_t methods,
                shl_budget *budget, shl_found *found)
{
    search s;
    memset(&s, 0, sizeof s);
    memset(found, 0, sizeof *found);
    s.found = found;
    s.seen.about = -1;
    s.stuck = s.at = -1;
    found->verdict = SHL_UNKNOWN;
    found->stuck = SHL_NONE;
    if (!problem_init(&s.p, operations, table, budget)) {
        stopped(&s);
    } else if (!(s.by = for_width(s.p.slots))) {
        found->cause = SHL_NOT_THIS_LANE;
    } else {
        take_turns(&s, methods);
        report(&s);
    }
    if (s.by) {
        s.by->depth_free(s.depth);
        s.by->layers_free(s.layers);
    }
    abstraction_free(&s.seen, budget);
    problem_free(&s.p);
}
