/* What is certain of the future of a history: see internal_search.h.
 *
 * For every state the completed operations that pass it are a list in the order of their calls,
 * with the first return of those from each on; a walker keeps, for every state, the first of its
 * list that is not called yet. */
#include "internal_search.h"

#include <string.h>

static int64_t ints(int64_t count)
{
    return count * (int64_t)sizeof(int32_t);
}

/* What is known of one kind while the states are gone through. */
typedef struct {
    int32_t passes[PASSED];
    int32_t reset; /* where it leads to so far */
    int is_legal;  /* anywhere so far */
} kind_facts;

/* Only what is `from` or `to` is passed by this transition as well as by those before. */
static void narrow(kind_facts *facts, int32_t from, int32_t to)
{
    if (!facts->is_legal) {
        facts->passes[0] = from;
        facts->passes[1] = to == from ? NO_STATE : to;
    }
    for (int i = 0; facts->is_legal && i < PASSED; i++)
        if (facts->passes[i] != from && facts->passes[i] != to)
            facts->passes[i] = NO_STATE;
    facts->is_legal = 1;
}

static int32_t place_of(const problem *p, int32_t state)
{
    for (int32_t place = 0; place < p->state_count; place++)
        if (p->states[place] == state)
            return place;
    return NO_STATE;
}

/* Of several next states it is not certain which is passed. */
static void narrow_to_several(kind_facts *facts, int32_t from)
{
    narrow(facts, from, from);
    facts->reset = NO_STATE;
}

/* Asks what a kind does in every state. 0: the model failed. */
static int look_at(foresight *seen, const problem *p, int32_t kind)
{
    kind_facts facts = {{NO_STATE, NO_STATE}, SHL_BRANCHES, 0};
    for (int32_t place = 0; place < p->state_count; place++) {
        int32_t next = shl_next(p->table, p->states[place], kind);
        if (next == SHL_ASK_FAILED)
            return 0;
        if (next == SHL_ILLEGAL) {
            facts.reset = NO_STATE;
            continue;
        }
        if (next < 0) {
            narrow_to_several(&facts, place);
            continue;
        }
        int32_t to = next == p->states[place] ? place : place_of(p, next);
        facts.reset = facts.reset == SHL_BRANCHES || facts.reset == next ? next : NO_STATE;
        narrow(&facts, place, to);
        if (to == place)
            seen->allows[(int64_t)kind * seen->words + place / 64] |= (uint64_t)1 << place % 64;
    }
    seen->resets[kind] = facts.reset < 0 || p->table->pure[kind] ? NO_STATE : facts.reset;
    memcpy(&seen->passes[kind * PASSED], facts.passes, sizeof facts.passes);
    return 1;
}

static int look_at_kinds(foresight *seen, const problem *p)
{
    uint8_t *known = shl_alloc_zeroed(p->budget, seen->kinds);
    int ok = known != NULL;
    for (int64_t i = 0; ok && i < seen->n; i++) {
        int32_t kind = p->ops->kind[i];
        ok = known[kind] || look_at(seen, p, kind);
        known[kind] = 1;
    }
    shl_free(p->budget, known, seen->kinds);
    return ok;
}

/* From the last operation to the first. `ahead`: of every state the first of its list so far. */
static void link_up(foresight *seen, const problem *p, int32_t *ahead)
{
    memset(ahead, 0xff, (size_t)ints(seen->states));
    seen->soonest[seen->n] = SHL_NEVER;
    for (int64_t op = seen->n - 1; op >= 0; op--) {
        int32_t kind = p->ops->kind[op], ret = p->ops->ret[op], first = seen->soonest[op + 1];
        seen->soonest[op] = seen->resets[kind] != NO_STATE && ret < first ? ret : first;
        for (int32_t which = 0; which < PASSED && ret != SHL_NEVER; which++) {
            int32_t state = seen->passes[kind * PASSED + which];
            int64_t at = op * PASSED + which;
            if (state == NO_STATE)
                continue;
            seen->next[at] = ahead[state];
            first = ahead[state] < 0 ? SHL_NEVER : seen->returns[ahead[state]];
            seen->returns[at] = ret < first ? ret : first;
            ahead[state] = (int32_t)at;
        }
    }
}

int32_t problem_foresee(problem *p)
{
    shl_budget *budget = p->budget;
    int64_t kinds = p->table->kinds, n = p->ops->n;
    if (n > INT32_MAX / PASSED)
        return 1;
    foresight *seen = p->seen = shl_alloc_zeroed(budget, sizeof *seen);
    if (!seen)
        return 0;
    seen->states = p->state_count;
    seen->words = (p->state_count + 63) / 64;
    seen->kinds = (int32_t)kinds;
    seen->n = n;
    seen->resets = shl_alloc(budget, ints(kinds));
    seen->passes = shl_alloc(budget, ints(kinds * PASSED));
    seen->allows = shl_alloc_zeroed(budget, kinds * seen->words * (int64_t)sizeof(uint64_t));
    seen->soonest = shl_alloc(budget, ints(n + 1));
    seen->next = shl_alloc(budget, ints(n * PASSED));
    seen->returns = shl_alloc(budget, ints(n * PASSED));
    int32_t *ahead = shl_alloc(budget, ints(seen->states));
    int ok = seen->resets && seen->passes && seen->allows && seen->soonest && seen->next &&
             seen->returns && ahead && look_at_kinds(seen, p);
    if (ok)
        link_up(seen, p, ahead);
    shl_free(budget, ahead, ints(seen->states));
    return ok;
}

void foresight_free(foresight *seen, shl_budget *budget)
{
    if (!seen)
        return;
    shl_free(budget, seen->resets, ints(seen->kinds));
    shl_free(budget, seen->passes, ints(seen->kinds * (int64_t)PASSED));
    shl_free(budget, seen->allows, seen->kinds * (int64_t)seen->words * (int64_t)sizeof(uint64_t));
    shl_free(budget, seen->soonest, ints(seen->n + 1));
    shl_free(budget, seen->next, ints(seen->n * PASSED));
    shl_free(budget, seen->returns, ints(seen->n * PASSED));
    shl_free(budget, seen, sizeof *seen);
}

int32_t walker_foresee(walker *w, const problem *p)
{
    if (!p->seen)
        return 1;
    w->ahead = shl_alloc(p->budget, ints(p->seen->states));
    if (!w->ahead)
        return 0;
    memset(w->ahead, 0xff, (size_t)ints(p->seen->states));
    int64_t called = w->e < 0 ? 0 : w->e < p->returns ? p->called[w->e] : p->ops->n;
    for (int64_t op = p->ops->n - 1; op >= called; op--)
        if (!problem_is_crashed(p, (int32_t)op))
            walker_passes_back(w, p, (int32_t)op);
    return 1;
}
