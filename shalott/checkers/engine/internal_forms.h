/* Values as nodes, and when two of them are one value. */
#ifndef SHL_INTERNAL_FORMS_H
#define SHL_INTERNAL_FORMS_H

#include "engine.h"
#include "entries.h"

/* A keyword and a string of one text are one value. */
static inline uint8_t shl_alike(uint8_t kind)
{
    return kind == SHL_NODE_TEXT ? SHL_NODE_KEYWORD : kind;
}

/* How many nodes a value has, itself included. */
int64_t shl_nodes_within(const shl_node *node);
/* Whether it has a set or a map of several: these may be written in any order. */
int shl_has_no_order(const shl_node *node, int64_t count);
/* A copy in which they are in one order; to be freed as `count` nodes. NULL: no memory. */
shl_node *shl_in_order(const shl_node *node, int64_t count, shl_budget *budget);

#endif
