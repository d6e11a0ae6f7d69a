/* What the files of the general search share. */
#ifndef SHL_INTERNAL_SEARCH_H
#define SHL_INTERNAL_SEARCH_H

#include "search.h"

#include <pthread.h>

/* --- the table of transitions -----------------------------------------------------------------*/

/* Transitions, looked up at the speed of memory; a miss asks the model. */

/* Dense rows where there are few kinds: row = rows[state / CHUNK][state % CHUNK], one cell a kind.
 * A hash of (state, kind) for all others. Cells are written once, under the lock, and read without
 * it; a table that has grown stays readable where it was until the end. */
enum {
    SHL_UNASKED = INT32_MIN,
    SHL_FIRST_LIST = -16, /* cell c <= this: several next states, list SHL_FIRST_LIST - c */
    DENSE_KINDS = 256,
    CHUNK = 256,
    CHUNKS = 1024, /* states beyond CHUNK * CHUNKS go to the hash */
};

typedef struct {
    uint64_t key; /* (state << 32 | kind) + 1; 0: empty */
    int32_t next;
} shl_cell;

typedef struct shl_hash {
    uint64_t slots; /* a power of two */
    uint64_t used;
    struct shl_hash *outgrown;
    shl_cell cells[];
} shl_hash;

typedef struct {
    int32_t count;
    int32_t states[];
} shl_list;

struct shl_table {
    int32_t kinds;
    uint8_t *pure;
    shl_ask_function ask;
    void *user;
    shl_budget *budget;
    pthread_mutex_t lock;
    int64_t asked;
    int32_t failed;
    int32_t row_kinds; /* cells a dense row has room for; 0: no dense rows */
    int32_t **chunks[CHUNKS];
    shl_hash *hash;
    shl_list **lists[CHUNKS]; /* list i = lists[i / CHUNK][i % CHUNK] */
    int32_t list_count;
    int32_t *gathered; /* what shl_branch gave during the ask under way */
    int32_t gathered_count, gathered_room;
};

/* The slow way: asks, stores, and answers the cell. SHL_ASK_FAILED: the model raised, or memory. */
int32_t shl_table_miss(shl_table *table, int32_t state, int32_t kind);
int32_t shl_table_hashed(shl_table *table, int32_t state, int32_t kind);

static inline int32_t shl_next(shl_table *table, int32_t state, int32_t kind)
{
    if (table->row_kinds && state < CHUNK * CHUNKS) {
        int32_t **chunk = __atomic_load_n(&table->chunks[state / CHUNK], __ATOMIC_ACQUIRE);
        if (chunk) {
            int32_t *row = __atomic_load_n(&chunk[state % CHUNK], __ATOMIC_ACQUIRE);
            if (row) {
                int32_t next = __atomic_load_n(&row[kind], __ATOMIC_ACQUIRE);
                if (next != SHL_UNASKED)
                    return next;
            }
        }
        return shl_table_miss(table, state, kind);
    }
    return shl_table_hashed(table, state, kind);
}

/* Several next states: how many, and which. */
static inline const shl_list *shl_list_of(const shl_table *table, int32_t next)
{
    int32_t list = SHL_FIRST_LIST - next;
    return __atomic_load_n(&table->lists[list / CHUNK], __ATOMIC_ACQUIRE)[list % CHUNK];
}

/* --- the history ------------------------------------------------------------------------------*/

/* What is certain of the future: which states the object will be in before a moment, whatever order
 * is found, because completed operations pass them (foresight.c).
 *
 * A kind passes a state if it takes effect in no other, or leads to no other; a read passes what it
 * returns, a write what it writes, a compare-and-set both of its values. A kind that leads to one
 * and the same state from every other is a reset: a write does. Then an operation that was called
 * need not take effect before it is of use to others:
 * - one that changes no state can be put where the object is in a state that it allows;
 * - a reset directly before another one, or where the object is in its state anyway.
 * A configuration in which such an operation has not taken effect can do all that one can do in
 * which it has, if what it can be put beside comes certainly, and in time. (Ours. That a write
 * which is overwritten unread may be left out is known to compilers as a dead store.) */
enum { NO_STATE = -1, PASSED = 2 };

typedef struct {
    int32_t states;    /* how many; they are told by their places in the problem's list */
    int32_t words;     /* of a set of states */
    int32_t kinds;     /* room of the arrays by kind */
    int64_t n;         /* of the arrays by operation */
    int32_t *resets;   /* [kinds] the state, as the table numbers it, that a reset leads to */
    int32_t *passes;   /* [kinds][PASSED] places of states; NO_STATE */
    uint64_t *allows;  /* [kinds][words] where one that changes no state can take effect */
    int32_t *soonest;  /* [n + 1] of the resets from an operation on, the first return */
    int32_t *next;     /* [n][PASSED] the next operation * PASSED + which that passes that state */
    int32_t *returns;  /* [n][PASSED] of those from there on, the first return */
} foresight;

/* A history as the searches walk it: return by return, with all that may take effect before
 * each. */

/* Return e is the e-th completion in time. Operations are ordered by call, so those called before
 * return e are the first called[e] ones. A completed operation has a slot while it is pending; a
 * crashed one belongs for ever to the class of its kind: crashed operations of one kind are the
 * same thing, used in the order of their calls. */
enum { STATES_MOST = 256 };

typedef struct {
    const shl_operations *ops;
    shl_table *table;
    shl_budget *budget;
    int32_t returns;
    int32_t *order;  /* [returns] the operation that returns */
    int32_t *called; /* [returns] */
    int32_t *place;  /* [n] slot of a completed operation; class of a crashed one */
    int32_t slots;
    int32_t classes;
    int32_t *class_of;    /* [kinds] -1: no crashed operation is of that kind */
    int32_t *class_kind;  /* [classes] */
    int32_t *class_start; /* [classes + 1] into members */
    int32_t *members;     /* crashed operations by class, in the order of their calls */
    int32_t crashed;
    uint64_t *weaker; /* [classes] see problem_relate_classes; NULL: nothing is known */
    foresight *seen;     /* NULL: nothing is known */
    int32_t state_count; /* of `states`; 0: not asked yet; -1: too many to list */
    int32_t states[STATES_MOST];
} problem;

/* 0: no memory (budget->stopped says so). */
int32_t problem_init(problem *p, const shl_operations *ops, shl_table *table, shl_budget *budget);
void problem_free(problem *p);

static inline int problem_is_crashed(const problem *p, int32_t op)
{
    return p->ops->ret[op] == SHL_NEVER;
}

/* A walker stands before return e and knows who is pending. */
typedef struct {
    int32_t e;
    int32_t *slot_op;   /* [slots] the operation pending there, or -1 */
    int32_t *available; /* [classes] crashed operations called so far */
    int32_t *ahead;     /* [states] the first of foresight.next that is not called yet, or -1 */
} walker;

int32_t walker_init(walker *w, const problem *p);
void walker_free(walker *w, const problem *p);
void walker_copy(walker *to, const walker *from, const problem *p);

/* Finds, when the states are listed and the classes are at most 64, which classes can only do what
 * another one can do, too: their bits stand in the `weaker` of that one. 0: the model failed or the
 * budget ended.
 *
 * Where both lead to the same state the weaker one goes first. For should it go later, or be
 * pending and go later, then the two can be exchanged; should it not go at all, it can replace the
 * other. (Crashed operations may take effect at any later time, or never; so what a weaker one does
 * without changing the state the other one need not be able to do.) */
int32_t problem_relate_classes(problem *p);

/* Looks ahead, when the states are listed. 0: the model failed or the budget ended. */
int32_t problem_foresee(problem *p);
void foresight_free(foresight *seen, shl_budget *budget);
/* What is ahead of a walker, wherever it stands. 0: no memory. */
int32_t walker_foresee(walker *w, const problem *p);

static inline int32_t foreseen_reset(const problem *p, int32_t op)
{
    return p->seen ? p->seen->resets[p->ops->kind[op]] : NO_STATE;
}

/* An operation was called: it is not ahead any more. */
static inline void walker_passes(walker *w, const problem *p, int32_t op)
{
    const foresight *seen = p->seen;
    for (int32_t at = op * PASSED; seen && w->ahead && at < (op + 1) * PASSED; at++) {
        int32_t state = seen->passes[p->ops->kind[op] * PASSED + at % PASSED];
        if (state != NO_STATE)
            w->ahead[state] = seen->next[at];
    }
}

static inline void walker_passes_back(walker *w, const problem *p, int32_t op)
{
    const foresight *seen = p->seen;
    for (int32_t at = op * PASSED; seen && w->ahead && at < (op + 1) * PASSED; at++) {
        int32_t state = seen->passes[p->ops->kind[op] * PASSED + at % PASSED];
        if (state != NO_STATE)
            w->ahead[state] = at;
    }
}

/* Lists the states that the kinds of this history reach from the initial one, if they are few. 0:
 * the model failed or the budget ended. */
int32_t problem_list_states(problem *p);

/* --- its abstraction --------------------------------------------------------------------------*/

/* A history seen through one question: is the object in a state that this operation allows?
 *
 * The states of the model fall into two blocks, those in which the operation can take effect
 * and the others. What each kind may do to the blocks, over all the states in them, makes a
 * model of two states that allows all that the real one does (existential abstraction: Clarke,
 * Grumberg & Long, 1994), so a history that is not linearizable for it is not linearizable.
 * Few kinds are left, most of them pure, and operations of one kind are interchangeable: a
 * search that drowned in what many pending operations might do to many states has little left
 * to try. */

typedef struct {
    problem p; /* the same operations; kinds and table are the abstraction's */
    shl_operations ops;
    int32_t *kind;
    int32_t about; /* the kind of the operation that was asked about; -1: nothing is built */
} abstraction;

/* Builds the abstraction for an operation of p, whose states must be listed; keeps the one
 * that is there if it is the same. 1: built; 0: it would tell nothing, or cost too much; -1:
 * the budget ended or the model failed. */
int abstraction_build(abstraction *a, const problem *p, int32_t op);
void abstraction_free(abstraction *a, shl_budget *budget);

/* --- crashed operations used ------------------------------------------------------------------*/

/* How often each class of crashed operations has been used: a persistent, hash-consed map.
 *
 * A search holds millions of these that differ in one place. Each is a tree of fixed depth over the
 * class number, 8 ways a level, counts at the bottom; equal trees are one tree, so equality is
 * equality of numbers, and the comparison that dominance needs skips what two trees share. 0 is the
 * empty map. */

enum { USED_WAYS = 8 };

typedef struct {
    int32_t to[USED_WAYS]; /* subtrees, or counts at the bottom */
} used_node;

typedef struct {
    shl_budget *budget;
    used_node *nodes; /* node 0 is the empty tree of any depth */
    int32_t *table;   /* node numbers by content; 0: empty slot */
    int32_t count, room;
    int64_t slots;
    int32_t depth;
} used_maps;

/* For classes in [0, classes). 0: no memory. Nothing is held until the first map is made. */
int32_t used_init(used_maps *maps, int32_t classes, shl_budget *budget);
void used_free(used_maps *maps);
int32_t used_count(const used_maps *maps, int32_t map, int32_t class);
/* The map with one more use of class; -1: no memory. */
int32_t used_add(used_maps *maps, int32_t map, int32_t class);
/* 1 if no class was used more often in a than in b. */
int32_t used_within(const used_maps *maps, int32_t a, int32_t b);

/* --- the searches -----------------------------------------------------------------------------*/

/* What the three searches say to the one that directs them (search.c). */

/* How a search paused or ended. */
enum {
    GOES_ON = 0,    /* its allowance of steps is used up */
    WITNESS = 1,    /* a linearization was found */
    NO_WITNESS = 2, /* there is none */
    UNCLEAR = 3,    /* this search can't tell: a window too wide, or everything survived it */
    STOPPED = 4,    /* the budget, or the model */
};

/* The searches, in one width. An opaque pointer is NULL when there was no memory. */
typedef struct {
    /* Depth first. reached: the first return that no configuration has passed yet. */
    void *(*depth_new)(const problem *p);
    int (*depth_run)(void *depth, int64_t steps);
    int32_t (*depth_foresee)(void *depth); /* what the problem foresees now; 0: no memory */
    int (*depth_leap)(void *depth, int32_t back, int32_t ahead, int64_t steps);
    int32_t (*depth_reached)(const void *depth);
    int64_t (*depth_configurations)(const void *depth);
    void (*depth_free)(void *depth);
    /* From any state before return `from`, to beyond return `to`. stuck: where none was left. */
    int (*window)(const problem *p, int32_t from, int32_t to, int64_t steps, int32_t *stuck);
    /* All layers. stuck as above; exact: 1 if no crashed class was left unlimited. */
    void *(*layers_new)(const problem *p);
    int (*layers_run)(void *layers, int64_t steps);
    int32_t (*layers_stuck)(const void *layers);
    int (*layers_exact)(const void *layers);
    int64_t (*layers_configurations)(const void *layers);
    void (*layers_free)(void *layers);
    int32_t slots_max;
} searches;

extern const searches searches_1;  /* up to 64 pending at once */
extern const searches searches_8;  /* up to 512 */
extern const searches searches_64; /* up to 4096 */

#endif
