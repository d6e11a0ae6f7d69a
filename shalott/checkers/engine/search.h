/* The general search: any model, as a table of transitions between small integers. */
#ifndef SHL_SEARCH_H
#define SHL_SEARCH_H

#include "engine.h"

/* --- encoding ---------------------------------------------------------------------------------*/

/* From the rows of a history to what the general search takes: operations as small integers,
 * grouped by the object that they are about. */

/* What a model reads of an operation, by its f. */
enum {
    SHL_READS_ARGUMENT = 1,
    SHL_READS_RESULT = 2,
    SHL_IS_PURE = 4,      /* it never changes the state: left out if it crashed */
    SHL_SEES_FAILURE = 8, /* one that failed is an observation; else it is left out */
};

/* Numbers different operations (f, argument, result, how it ended), in the order in which they are
 * met. It may be used for one history after the other: what was met before keeps its number. */
typedef struct shl_kinds shl_kinds;

shl_kinds *shl_kinds_new(shl_budget *budget);
void shl_kinds_free(shl_kinds *kinds);
int32_t shl_kinds_count(const shl_kinds *kinds);
/* By kind: 1 if it never changes a state. */
const uint8_t *shl_kinds_pure(const shl_kinds *kinds);
/* This one doesn't either, though others of its f may: a compare-and-set of a value with itself. */
void shl_kinds_mark_pure(shl_kinds *kinds, int32_t kind);

/* Columns of checkers.history.concurrent.ConcurrentHistory. type: 0 ok, 1 failed, 2 crashed. */
typedef struct {
    int64_t n;
    const int32_t *f;
    const uint8_t *reads; /* by f code: of the enum above */
    const int32_t *means; /* by f code: the same number for the same meaning in every history */
    const int32_t *key;   /* in [0, keys); NULL: there is one object */
    int32_t keys;
    const int32_t *process; /* NULL: the model does not ask */
    const uint8_t *type;
    const uint8_t *argument_kind; /* 2: the number is a form's; forms[number] stands for it */
    const int64_t *argument;
    const int32_t *argument_forms;
    const uint8_t *result_kind;
    const int64_t *result;
    const int32_t *result_forms;
    const int32_t *call; /* ascending */
    const int32_t *ret;
} shl_rows;

/* Columns in memory that the caller gives: n each, but for start (keys + 1) and ranks (keys).
 * Operations of one object stand together, in the order of their calls; those of key k at
 * start[k] .. start[k + 1]. Ranks are dense in each object. */
typedef struct {
    int32_t *row;
    int32_t *call;
    int32_t *ret;
    int32_t *kind;
    int32_t *start;
    int32_t *ranks;
    int32_t *fresh; /* the rows in which kinds were met for the first time, in the kinds' order */
    int32_t fresh_count;
} shl_encoded;

/* What the search takes: the operations of one object. */
typedef struct {
    int64_t n;
    int32_t ranks;
    const int32_t *call; /* ascending */
    const int32_t *ret;  /* SHL_NEVER: crashed; it may happen at any later time, or never */
    const int32_t *kind;
} shl_operations;

/* The lowest kind that changes a state and that more than one of n operations is of; SHL_NONE: each
 * such kind occurs once, or there is no memory to tell. */
int32_t shl_repeated(const shl_kinds *kinds, int64_t n, const int32_t *kind, shl_budget *budget);

/* Into `memory`, which has room for 5 n + 2 keys + 1. 0, or why not: SHL_MEMORY. */
int32_t shl_encode(const shl_rows *rows, shl_kinds *kinds, int32_t *memory, shl_encoded *out,
                   shl_budget *budget);
/* Those of one object, as the search takes them; they borrow that memory. */
void shl_operations_of(const shl_encoded *encoded, int32_t key, shl_operations *operations);

/* --- the model -----------------------------------------------------------------------------------
 * Asked once for each (state, kind): the next state's number; SHL_ILLEGAL if the operation can't
 * take effect in that state; SHL_BRANCHES if it may lead to several states, which were given with
 * shl_branch; SHL_ASK_FAILED if the model raised. State 0 is the initial one; the answerer numbers
 * states densely, in the order in which it meets them. */
enum { SHL_ILLEGAL = -1, SHL_BRANCHES = -2, SHL_ASK_FAILED = -3 };

typedef struct shl_table shl_table;
typedef int32_t (*shl_ask_function)(void *user, shl_table *table, int32_t state, int32_t kind);

/* kinds: how many different operations (f, argument, result) there are; pure[kind] is 1 if the kind
 * never changes any state (a read). `ask` is called with `user`, by one thread at a time. A table
 * may be shared by searches on several threads. NULL: no memory. */
shl_table *shl_table_new(int32_t kinds, const uint8_t *pure, shl_ask_function ask, void *user,
                         shl_budget *budget);
void shl_table_free(shl_table *table, shl_budget *budget);
/* More kinds, appended: pure describes them all. 0 if there is no memory. No search may run. */
int32_t shl_table_grow(shl_table *table, int32_t kinds, const uint8_t *pure, shl_budget *budget);
/* Within an ask: one of several next states. */
void shl_branch(shl_table *table, int32_t state);
/* How many questions the model was asked. */
int64_t shl_table_asked(const shl_table *table);

/* --- the search --------------------------------------------------------------------------------*/

enum {
    SHL_BY_DEPTH = 1,  /* depth first, remembering dead ends: finds witnesses */
    SHL_BY_WINDOW = 2, /* from every state, shortly before the point where that is stuck */
    SHL_BY_LAYERS = 4, /* just-in-time linearization, return by return: finds violations */
    SHL_BY_ALL = 7,
    SHL_IMPATIENT = 8, /* turns begin with a few steps, and are everyone's: for tests on short
                          histories, which depth first would decide before anyone else is asked */
};

/* What was found. stuck: the completed operation at whose return no configuration was left,
 * SHL_NONE if valid or not known; first: 1 if no earlier return has that property, so that the
 * events up to this return are the shortest prefix that is not linearizable. */
typedef struct {
    int32_t verdict;
    int32_t cause;
    int32_t method; /* which of the three decided */
    int32_t stuck;
    int32_t first;
    int64_t reached; /* returns that some partial linearization passed */
    int64_t returns; /* of how many */
    int64_t configurations;
} shl_found;

/* A search that can pause: go works until that moment (0: to the end) or a little longer, and says
 * whether it has ended; until then `found` tells how far it got. The operations, the table and the
 * budget must outlive it. NULL: no memory. */
typedef struct shl_searching shl_searching;
shl_searching *shl_search_begin(const shl_operations *operations, shl_table *table,
                                int32_t methods, shl_budget *budget);
int32_t shl_search_go(shl_searching *searching, int64_t until_ns, shl_found *found);
void shl_search_end(shl_searching *searching, shl_budget *budget);

/* Begins one, goes to its end, and ends it. */
void shl_search(const shl_operations *operations, shl_table *table, int32_t methods,
                shl_budget *budget, shl_found *found);

#endif
