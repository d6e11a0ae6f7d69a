/* The general search: any model, as a table of transitions between small integers. */
#ifndef SHL_SEARCH_H
#define SHL_SEARCH_H

#include "encode.h"

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
