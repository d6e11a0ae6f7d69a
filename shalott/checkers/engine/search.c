/* The general search: which of the three methods works when, and what their answers mean together.
 *
 * Depth first finds a witness soon if there is one, or gets stuck and stays there. Where it is
 * stuck a window is tried: if no state at all before it lets the next returns pass, the history is
 * wrong, and little of it had to be looked at. Layers decide what is left. Turns are of doubling
 * length, and none has one that took longer so far than a third of depth first's time: the whole
 * costs a small multiple of the one that decides. */
#include "internal_search.h"

#include <string.h>

enum { FIRST_ALLOWANCE = 4096, FURTHER = 8, SHARE = 3 };

/* Windows around the return where depth first is stuck: which is next. */
typedef struct {
    int32_t at;     /* that return; -1: none yet */
    int32_t before; /* how many returns before its call the next one begins */
    int all;        /* there is no wider one */
} windows;

/* A method's turns: how many steps the next one has, and how long all of them took. */
typedef struct {
    int64_t steps;
    int64_t spent_ns;
} turns;

typedef struct shl_searching {
    problem p;
    const searches *by;
    void *depth, *layers;
    windows real;      /* of the history itself */
    windows seen;      /* of the history seen through one question */
    abstraction about; /* that history */
    int32_t stuck;     /* the first return known to be impassable; -1 */
    int32_t methods;
    turns of_depth, of_leap, of_question, of_window, of_layers;
    int32_t back;    /* how far it steps back to leap */
    int32_t before;  /* how far depth first had got before its last turn */
    int32_t stalled; /* for how many turns it got no further */
    int has_windows; /* 0: they can't be looked through */
    int ended;
    shl_found answer;
    shl_found *found; /* that */
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
    int32_t stop = shl_check_budget(s->p.budget); /* the one that it is within, too */
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

/* Can this operation take effect in no state at all? */
static int impossible(const problem *p, int32_t op)
{
    for (int32_t s = 0; s < p->state_count; s++)
        if (shl_next(p->table, p->states[s], p->ops->kind[op]) != SHL_ILLEGAL)
            return 0;
    return p->state_count > 0;
}

/* Windows are about the return `at` from now on, the first one no wider than that. */
static void aim(windows *w, int32_t at, int32_t before)
{
    if (w->at != at)
        *w = (windows){at, before, 0};
}

/* Everything survived this window. */
static void widen(windows *w, const problem *p)
{
    if (w->before >= p->returns)
        w->all = 1;
    else
        w->before = w->before > p->returns / 4 ? p->returns : w->before * 4 + p->slots;
}

/* This window, which ends `after` returns behind its return, or a few. */
static int look(search *s, const problem *p, windows *w, int32_t after, int64_t steps,
                int32_t *stuck)
{
    int32_t call = returns_before_call(p, p->order[w->at]), least = 4 * p->slots;
    int32_t from = call > w->before ? call - w->before : 0;
    after = after > least ? after : least;
    int32_t to = w->at < p->returns - after ? w->at + after : p->returns;
    int ended = s->by->window(p, from, to, steps, stuck);
    if (ended == UNCLEAR)
        widen(w, p);
    return ended; /* GOES_ON: it is looked at again, with more steps */
}

/* From every state, shortly before the point where depth first is stuck. */
static int try_window(search *s, int64_t steps, int32_t *stuck)
{
    int32_t at = reached(s);
    if (impossible(&s->p, s->p.order[at])) {
        *stuck = at;
        return NO_WITNESS;
    }
    aim(&s->real, at, 0);
    if (s->real.all)
        return UNCLEAR;
    return look(s, &s->p, &s->real, 0, steps, stuck);
}

/* The same, seen through one question: is what is stuck possible? So little is left of the history
 * then that a window can begin much earlier, and end later. */
static int try_question(search *s, int64_t steps, int32_t *stuck)
{
    int32_t at = reached(s);
    aim(&s->seen, at, s->p.slots);
    int built = abstraction_build(&s->about, &s->p, s->p.order[at]);
    if (built <= 0) {
        s->seen.all = 1;
        return built < 0 ? STOPPED : UNCLEAR;
    }
    return look(s, &s->about.p, &s->seen, s->seen.before, steps, stuck);
}

static int64_t first_allowance(const search *s)
{
    return s->methods & SHL_IMPATIENT ? 2 : FIRST_ALLOWANCE;
}

static int is_due(const turns *mine, const turns *depth, int impatient)
{
    return impatient || mine->spent_ns <= depth->spent_ns / SHARE;
}

/* A turn has ended that began then. Now. */
static int64_t took(turns *mine, int64_t began_ns)
{
    int64_t now_ns = shl_now_ns();
    mine->spent_ns += now_ns - began_ns;
    return now_ns;
}

/* The history is not linearizable, but the return where that was seen may not be the first: looks
 * closer, for as long as it took to get here. */
static void sharpen(search *s, int64_t took_ns)
{
    int64_t until_ns = shl_now_ns() + took_ns, steps = FIRST_ALLOWANCE / 2;
    while (s->stuck > reached(s) && shl_now_ns() < until_ns && !s->p.budget->stopped) {
        int32_t stuck = -1;
        steps *= 2;
        if (s->depth && s->by->depth_run(s->depth, steps) == NO_WITNESS)
            s->stuck = reached(s);
        else if (s->real.all && s->real.at == reached(s))
            return;
        else if (try_window(s, steps, &stuck) == NO_WITNESS && stuck < s->stuck)
            s->stuck = stuck;
    }
}

/* Windows, of the history as it is seen or as it is: one turn. 1: that settled it. */
static int window_turn(search *s, int (*window)(search *, int64_t, int32_t *), turns *mine,
                       int64_t *now_ns, int64_t all_ns)
{
    int32_t stuck = -1;
    int ended = window(s, mine->steps, &stuck);
    *now_ns = took(mine, *now_ns);
    if (!settled(s, ended, SHL_BY_WINDOW, stuck))
        return 0;
    if (ended == NO_WITNESS)
        sharpen(s, all_ns + mine->spent_ns);
    return 1;
}

/* Depth first has a turn. 1: that settled it; 0: another search may have one now; -1: not yet. */
static int depth_turn(search *s, int64_t *now_ns)
{
    int impatient = (s->methods & SHL_IMPATIENT) != 0;
    if (!s->depth && !(s->depth = s->by->depth_new(&s->p)))
        return stopped(s), 1;
    int ended = s->by->depth_run(s->depth, s->of_depth.steps);
    if (settled(s, ended, SHL_BY_DEPTH, reached(s)))
        return 1;
    *now_ns = took(&s->of_depth, *now_ns);
    /* While it gets on no other search works; nor at the first pause, which is often short. */
    s->stalled = reached(s) > s->before ? 0 : s->stalled + 1;
    if (reached(s) - s->before > FURTHER * s->p.slots) /* what was so hard lies well behind */
        s->of_depth.steps = s->of_question.steps = s->of_window.steps = first_allowance(s);
    s->before = reached(s);
    if (s->stalled < 2 && !impatient)
        return -1;
    s->of_depth.steps *= 2;
    return 0;
}

/* Depth first leaps, if it can. A leap that is not long enough is followed by one from further
 * back. 1: that settled it. */
static int leap_turn(search *s, int64_t *now_ns)
{
    int impatient = (s->methods & SHL_IMPATIENT) != 0;
    int32_t least = impatient ? 1 : 4 * s->p.slots, before = reached(s);
    s->back = s->back < least ? least : s->back;
    int ended = s->by->depth_leap(s->depth, s->back, least, s->of_leap.steps);
    if (settled(s, ended, SHL_BY_DEPTH, reached(s)))
        return 1;
    *now_ns = took(&s->of_leap, *now_ns);
    if (ended == UNCLEAR)
        s->of_leap.steps *= 4;
    else if (reached(s) > before)
        s->back = s->stalled = 0;
    else
        s->back = s->back < s->p.returns ? s->back * 2 : s->p.returns;
    return 0;
}

static int layers_turn(search *s, int64_t *now_ns)
{
    if (!s->layers && !(s->layers = s->by->layers_new(&s->p)))
        return stopped(s), 1;
    int ended = s->by->layers_run(s->layers, s->of_layers.steps);
    if (settled(s, ended, SHL_BY_LAYERS, s->by->layers_stuck(s->layers)))
        return 1;
    *now_ns = took(&s->of_layers, *now_ns);
    s->of_layers.steps *= 2;
    return 0;
}

/* A turn of everybody whose turn it is. 1: that settled it. */
static int turn_of_all(search *s, int64_t *now_ns)
{
    int impatient = (s->methods & SHL_IMPATIENT) != 0;
    if (s->methods & SHL_BY_DEPTH) {
        int settled_it = depth_turn(s, now_ns);
        if (settled_it)
            return settled_it > 0;
    }
    if (!s->p.state_count) {
        if (!problem_list_states(&s->p))
            return stopped(s), 1;
        if (s->depth && s->p.seen && !s->by->depth_foresee(s->depth))
            return stopped(s), 1;
    }
    if (s->p.state_count < 0)
        s->has_windows = 0; /* there is no starting from every state */
    if (s->depth && s->p.seen && s->of_leap.spent_ns <= s->of_depth.spent_ns &&
        leap_turn(s, now_ns))
        return 1;
    while (s->has_windows && !s->seen.all && is_due(&s->of_question, &s->of_depth, impatient)) {
        if (window_turn(s, try_question, &s->of_question, now_ns, s->of_depth.spent_ns))
            return 1;
        s->of_question.steps *= 2;
    }
    if (s->has_windows && is_due(&s->of_window, &s->of_depth, impatient)) {
        if (window_turn(s, try_window, &s->of_window, now_ns, s->of_depth.spent_ns))
            return 1;
        s->of_window.steps *= 2;
    }
    int is_last = !s->depth || ((s->stalled > 3 || impatient) &&
                                is_due(&s->of_layers, &s->of_depth, impatient));
    return (s->methods & SHL_BY_LAYERS) && is_last && layers_turn(s, now_ns);
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

static void begin(search *s, const shl_operations *operations, shl_table *table, int32_t methods,
                  shl_budget *budget)
{
    memset(s, 0, sizeof *s);
    s->methods = methods;
    s->found = &s->answer;
    s->about.about = -1;
    s->stuck = s->real.at = s->seen.at = s->before = -1;
    s->has_windows = (methods & SHL_BY_DEPTH) && (methods & SHL_BY_WINDOW);
    s->found->verdict = SHL_UNKNOWN;
    s->found->stuck = SHL_NONE;
    s->of_depth.steps = first_allowance(s);
    s->of_question = s->of_window = s->of_layers = s->of_leap = s->of_depth;
    s->ended = 1;
    if (!problem_init(&s->p, operations, table, budget))
        stopped(s);
    else if (!(s->by = for_width(s->p.slots)))
        s->found->cause = SHL_NOT_THIS_MONITOR;
    else if ((methods & SHL_IMPATIENT) && !problem_list_states(&s->p))
        stopped(s);
    else
        s->ended = 0;
}

static void end(search *s)
{
    shl_budget *budget = s->p.budget;
    if (s->by) {
        s->by->depth_free(s->depth);
        s->by->layers_free(s->layers);
    }
    abstraction_free(&s->about, budget);
    problem_free(&s->p);
}

static void go(search *s, int64_t until_ns)
{
    for (int64_t now_ns = shl_now_ns(); !s->ended && !(until_ns && now_ns >= until_ns);)
        s->ended = turn_of_all(s, &now_ns);
    if (s->by)
        report(s);
}

shl_searching *shl_search_begin(const shl_operations *operations, shl_table *table,
                                int32_t methods, shl_budget *budget)
{
    search *s = shl_alloc(budget, sizeof *s);
    if (s)
        begin(s, operations, table, methods, budget);
    return s;
}

int32_t shl_search_go(shl_searching *s, int64_t until_ns, shl_found *found)
{
    go(s, until_ns);
    *found = s->answer;
    return s->ended;
}

void shl_search_end(shl_searching *s, shl_budget *budget)
{
    if (!s)
        return;
    end(s);
    shl_free(budget, s, sizeof *s);
}

void shl_search(const shl_operations *operations, shl_table *table, int32_t methods,
                shl_budget *budget, shl_found *found)
{
    search s;
    begin(&s, operations, table, methods, budget);
    go(&s, 0);
    *found = s.answer;
    end(&s);
}
