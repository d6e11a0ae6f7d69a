/* Prepares a history for the searches; and sees them through one question. See
 * internal_search.h. */
#include "internal_search.h"

#include <string.h>

static int64_t ints(int64_t count)
{
    return count * (int64_t)sizeof(int32_t);
}

/* Returns in order, and how many operations were called before each. */
static int order_returns(problem *p)
{
    const shl_operations *ops = p->ops;
    int32_t *at_rank = shl_alloc(p->budget, ints(ops->ranks));
    if (!at_rank)
        return 0;
    memset(at_rank, 0xff, (size_t)ints(ops->ranks));
    for (int32_t i = 0; i < ops->n; i++)
        if (ops->ret[i] != SHL_NEVER)
            at_rank[ops->ret[i]] = i;
    int32_t e = 0, called = 0;
    for (int32_t rank = 0; rank < ops->ranks; rank++) {
        if (at_rank[rank] < 0)
            continue;
        while (called < ops->n && ops->call[called] < rank)
            called++;
        p->order[e] = at_rank[rank];
        p->called[e++] = called;
    }
    shl_free(p->budget, at_rank, ints(ops->ranks));
    return 1;
}

/* Gives each completed operation a slot that no other pending one has: as many slots as were ever
 * pending at once. */
static int assign_slots(problem *p)
{
    int32_t room = 64, free_count = 0, called = 0;
    int32_t *vacant = shl_alloc(p->budget, ints(room));
    if (!vacant)
        return 0;
    for (int32_t e = 0; e < p->returns; e++) {
        for (; called < p->called[e]; called++)
            if (!problem_is_crashed(p, called))
                p->place[called] = free_count ? vacant[--free_count] : p->slots++;
        if (free_count == room) {
            int32_t *more = shl_resize(p->budget, vacant, ints(room), ints(room * 2));
            if (!more) {
                shl_free(p->budget, vacant, ints(room));
                return 0;
            }
            vacant = more;
            room *= 2;
        }
        vacant[free_count++] = p->place[p->order[e]];
    }
    shl_free(p->budget, vacant, ints(room));
    return 1;
}

static int classify_crashed(problem *p)
{
    const shl_operations *ops = p->ops;
    int32_t kinds = p->table->kinds;
    int32_t *placed = shl_alloc_zeroed(p->budget, ints(kinds));
    p->class_of = shl_alloc(p->budget, ints(kinds));
    if (!placed || !p->class_of) {
        shl_free(p->budget, placed, ints(kinds));
        return 0;
    }
    memset(p->class_of, 0xff, (size_t)ints(kinds));
    for (int32_t i = 0; i < ops->n; i++)
        if (problem_is_crashed(p, i) && !p->table->pure[ops->kind[i]] &&
            p->class_of[ops->kind[i]] < 0)
            p->class_of[ops->kind[i]] = p->classes++;
    p->class_kind = shl_alloc(p->budget, ints(p->classes));
    p->class_start = shl_alloc_zeroed(p->budget, ints(p->classes + 1));
    p->members = shl_alloc(p->budget, ints(p->crashed));
    int ok = p->class_kind && p->class_start && p->members;
    for (int32_t i = 0; ok && i < ops->n; i++) {
        if (!problem_is_crashed(p, i))
            continue;
        int32_t class = p->class_of[ops->kind[i]];
        p->place[i] = class; /* -1: a crashed read can't matter */
        if (class >= 0) {
            p->class_kind[class] = ops->kind[i];
            p->class_start[class + 1]++;
        }
    }
    for (int32_t c = 0; ok && c < p->classes; c++)
        p->class_start[c + 1] += p->class_start[c];
    for (int32_t i = 0; ok && i < ops->n; i++)
        if (problem_is_crashed(p, i) && p->place[i] >= 0)
            p->members[p->class_start[p->place[i]] + placed[ops->kind[i]]++] = i;
    shl_free(p->budget, placed, ints(kinds));
    return ok;
}

int32_t problem_init(problem *p, const shl_operations *ops, shl_table *table, shl_budget *budget)
{
    memset(p, 0, sizeof *p);
    p->ops = ops;
    p->table = table;
    p->budget = budget;
    for (int64_t i = 0; i < ops->n; i++)
        p->crashed += ops->ret[i] == SHL_NEVER;
    p->returns = (int32_t)ops->n - p->crashed;
    p->order = shl_alloc(budget, ints(p->returns));
    p->called = shl_alloc(budget, ints(p->returns));
    p->place = shl_alloc(budget, ints(ops->n));
    return p->order && p->called && p->place && order_returns(p) && assign_slots(p) &&
           classify_crashed(p);
}

static int64_t weaker_bytes(const problem *p)
{
    return p->classes * (int64_t)sizeof *p->weaker;
}

void problem_free(problem *p)
{
    shl_free(p->budget, p->order, ints(p->returns));
    shl_free(p->budget, p->called, ints(p->returns));
    shl_free(p->budget, p->place, ints(p->ops->n));
    shl_free(p->budget, p->class_of, ints(p->table->kinds));
    shl_free(p->budget, p->class_kind, ints(p->classes));
    shl_free(p->budget, p->class_start, ints(p->classes + 1));
    shl_free(p->budget, p->members, ints(p->crashed));
    shl_free(p->budget, p->weaker, weaker_bytes(p));
    foresight_free(p->seen, p->budget);
}

int32_t walker_init(walker *w, const problem *p)
{
    w->e = -1; /* before everything: the first step calls what comes before return 0 */
    w->slot_op = shl_alloc(p->budget, ints(p->slots));
    w->available = shl_alloc_zeroed(p->budget, ints(p->classes));
    if (!w->slot_op || !w->available)
        return 0;
    memset(w->slot_op, 0xff, (size_t)ints(p->slots));
    return walker_foresee(w, p);
}

void walker_free(walker *w, const problem *p)
{
    shl_free(p->budget, w->slot_op, ints(p->slots));
    shl_free(p->budget, w->available, ints(p->classes));
    if (w->ahead)
        shl_free(p->budget, w->ahead, ints(p->seen->states));
}

void walker_copy(walker *to, const walker *from, const problem *p)
{
    to->e = from->e;
    memcpy(to->slot_op, from->slot_op, (size_t)ints(p->slots));
    memcpy(to->available, from->available, (size_t)ints(p->classes));
    if (to->ahead && from->ahead)
        memcpy(to->ahead, from->ahead, (size_t)ints(p->seen->states));
}

/* Adds a state to those known; 0 if that is one too many. */
static int add_state(problem *p, int32_t state)
{
    for (int32_t known = 0; known < p->state_count; known++)
        if (p->states[known] == state)
            return 1;
    if (p->state_count == STATES_MOST)
        return 0;
    p->states[p->state_count++] = state;
    return 1;
}

/* Adds what a state leads to by one kind. 1: done, 0: too many, -1: the model failed. */
static int add_next_states(problem *p, int32_t state, int32_t kind)
{
    int32_t next = shl_next(p->table, state, kind);
    if (next == SHL_ASK_FAILED)
        return -1;
    if (next >= 0)
        return add_state(p, next);
    if (next > SHL_FIRST_LIST)
        return 1;
    const shl_list *list = shl_list_of(p->table, next);
    for (int32_t b = 0; b < list->count; b++)
        if (!add_state(p, list->states[b]))
            return 0;
    return 1;
}

int32_t problem_list_states(problem *p)
{
    int32_t kinds = p->table->kinds, occurring = 0;
    int32_t *occurs = shl_alloc_zeroed(p->budget, ints(kinds) * 2), *list = occurs + kinds;
    if (!occurs)
        return 0;
    for (int64_t i = 0; i < p->ops->n; i++) {
        int32_t kind = p->ops->kind[i];
        if (!occurs[kind] && !p->table->pure[kind])
            list[occurring++] = kind;
        occurs[kind] = 1;
    }
    p->states[0] = 0;
    p->state_count = 1;
    int more = 1;
    for (int32_t known = 0; known < p->state_count && more == 1; known++)
        for (int32_t k = 0; k < occurring && more == 1; k++)
            more = add_next_states(p, p->states[known], list[k]);
    if (more == 0)
        p->state_count = -1;
    shl_free(p->budget, occurs, ints(kinds) * 2);
    return more >= 0 && (p->state_count < 0 || (problem_relate_classes(p) && problem_foresee(p)));
}

/* Can class b do all that class a can? -1: the model failed. */
static int is_within(const problem *p, int32_t a, int32_t b)
{
    for (int32_t s = 0; s < p->state_count; s++) {
        int32_t state = p->states[s], by_a = shl_next(p->table, state, p->class_kind[a]);
        if (by_a == SHL_ILLEGAL || by_a == state)
            continue;
        int32_t by_b = shl_next(p->table, state, p->class_kind[b]);
        if (by_a == SHL_ASK_FAILED || by_b == SHL_ASK_FAILED)
            return -1;
        if (by_a < 0 || by_a != by_b) /* what branches is taken for more than the other can */
            return 0;
    }
    return 1;
}

int32_t problem_relate_classes(problem *p)
{
    if (p->classes < 2 || p->classes > 64)
        return 1;
    p->weaker = shl_alloc_zeroed(p->budget, weaker_bytes(p));
    if (!p->weaker)
        return 0;
    for (int32_t b = 0; b < p->classes; b++)
        for (int32_t a = 0; a < p->classes; a++) {
            int within = a == b ? 0 : is_within(p, a, b);
            int as_strong = within > 0 && a > b ? is_within(p, b, a) : 0;
            if (within < 0 || as_strong < 0)
                return 0;
            if (within && !as_strong) /* of two that are alike the first counts as weaker */
                p->weaker[b] |= (uint64_t)1 << a;
        }
    return 1;
}

/* --- the abstraction: two blocks of states instead of all -------------------------------------*/

/* An abstract kind is its relation: bit 2 * b + c says that it may lead from block b to block c. */
enum { RELATIONS = 16, QUESTIONS_MOST = 1 << 17 };

static int32_t answer(void *user, shl_table *table, int32_t block, int32_t relation)
{
    (void)user;
    int32_t next = relation >> (2 * block) & 3;
    if (next == 3) {
        shl_branch(table, 0);
        shl_branch(table, 1);
        return SHL_BRANCHES;
    }
    return next == 0 ? SHL_ILLEGAL : next - 1;
}

/* The block of every listed state, by its number; the initial state's is 0. -1: not two blocks. */
static int divide(const problem *p, int32_t kind, int8_t *block_of, int32_t numbers)
{
    memset(block_of, -1, (size_t)numbers);
    int32_t allowed = 0;
    int initial = shl_next(p->table, p->states[0], kind) != SHL_ILLEGAL;
    for (int32_t s = 0; s < p->state_count; s++) {
        int allows = shl_next(p->table, p->states[s], kind) != SHL_ILLEGAL;
        block_of[p->states[s]] = allows != initial;
        allowed += allows;
    }
    return allowed > 0 && allowed < p->state_count;
}

/* What a kind may do to the blocks; -1: the model failed. */
static int32_t relation_of(const problem *p, int32_t kind, const int8_t *block_of)
{
    int32_t relation = 0;
    for (int32_t s = 0; s < p->state_count; s++) {
        int32_t from = block_of[p->states[s]], next = shl_next(p->table, p->states[s], kind);
        if (next == SHL_ASK_FAILED)
            return -1;
        if (next >= 0)
            relation |= 1 << (2 * from + block_of[next]);
        if (next > SHL_FIRST_LIST)
            continue;
        const shl_list *list = shl_list_of(p->table, next);
        for (int32_t i = 0; i < list->count; i++)
            relation |= 1 << (2 * from + block_of[list->states[i]]);
    }
    return relation;
}

/* The kinds of the history, each replaced by its relation. 0: the model failed, or no memory. */
static int replace_kinds(abstraction *a, const problem *p, const int8_t *block_of)
{
    int32_t *relation = shl_alloc(p->budget, ints(p->table->kinds));
    if (!relation)
        return 0;
    memset(relation, 0xff, (size_t)ints(p->table->kinds));
    int ok = 1;
    for (int64_t i = 0; ok && i < p->ops->n; i++) {
        int32_t kind = p->ops->kind[i];
        if (relation[kind] < 0)
            relation[kind] = relation_of(p, kind, block_of);
        a->kind[i] = relation[kind];
        ok = a->kind[i] >= 0;
    }
    shl_free(p->budget, relation, ints(p->table->kinds));
    return ok;
}

static int begin(abstraction *a, const problem *p)
{
    uint8_t pure[RELATIONS];
    for (int32_t relation = 0; relation < RELATIONS; relation++)
        pure[relation] = !(relation & (1 << 1 | 1 << 2)); /* never into the other block */
    a->ops = *p->ops;
    a->ops.kind = a->kind;
    shl_table *table = shl_table_new(RELATIONS, pure, answer, NULL, p->budget);
    if (!table)
        return 0;
    if (!problem_init(&a->p, &a->ops, table, p->budget))
        return 0;
    a->p.states[0] = 0;
    a->p.states[1] = 1;
    a->p.state_count = 2;
    return problem_relate_classes(&a->p) && problem_foresee(&a->p);
}

int abstraction_build(abstraction *a, const problem *p, int32_t op)
{
    int32_t kind = p->ops->kind[op], numbers = 0;
    if (a->about == kind)
        return 1;
    abstraction_free(a, p->budget);
    if ((int64_t)p->table->kinds * p->state_count > QUESTIONS_MOST)
        return 0;
    for (int32_t s = 0; s < p->state_count; s++)
        numbers = p->states[s] >= numbers ? p->states[s] + 1 : numbers;
    int8_t *block_of = shl_alloc(p->budget, numbers);
    if (!block_of)
        return -1;
    int built = divide(p, kind, block_of, numbers);
    if (built) {
        a->kind = shl_alloc(p->budget, ints(p->ops->n));
        built = a->kind && replace_kinds(a, p, block_of) && begin(a, p) ? 1 : -1;
        a->about = built > 0 ? kind : -1;
    }
    shl_free(p->budget, block_of, numbers);
    return built;
}

void abstraction_free(abstraction *a, shl_budget *budget)
{
    if (a->p.table) {
        shl_table *table = a->p.table;
        problem_free(&a->p);
        shl_table_free(table, budget);
        memset(&a->p, 0, sizeof a->p);
    }
    shl_free(budget, a->kind, ints(a->ops.n));
    a->kind = NULL;
    a->about = -1;
}
