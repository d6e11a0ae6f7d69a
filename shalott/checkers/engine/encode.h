/* From the rows of a history to what the general search takes: operations as small integers,
 * grouped by the object that they are about. */
#ifndef SHL_ENCODE_H
#define SHL_ENCODE_H

#include "engine.h"

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

#endif
