/* Two blocks of states instead of all; see internal_abstraction.h. */
#include "internal_abstraction.h"

#include <string.h>

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

static int64_t ints(int64_t count)
{
    return count * (int64_t)sizeof(int32_t);
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
    return problem_relate_classes(&a->p);
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
