/* What the readers of entries share: the batch that they fill. */
#ifndef SHL_INTERNAL_ENTRIES_H
#define SHL_INTERNAL_ENTRIES_H

#include "entries.h"
#include "internal_read.h"

/* The fields that an entry has of its own; their names' ids are FIRST_FIELD + field. */
enum {
    FIELD_TYPE = 0,
    FIELD_F = 1,
    FIELD_PROCESS = 2,
    FIELD_VALUE = 3,
    FIELD_TIME = 4,
    FIELD_INDEX = 5,
    FIELD_KEY = 6,
    FIELD_ERROR = 7,
    FIELDS = 8,
};

/* Ids that every reader begins with: the types' are their numbers. */
enum { ID_NEMESIS = 4, FIRST_FIELD = 5 };

enum { MOST_OF_PASSING = 24 }; /* bytes of a short one, which is worth an id */

struct shl_entries {
    shl_reader reader; /* its state, budget, and texts (SHL_READ_WORDS); where it stands */
    shl_batch batch;
    shl_node *nodes;
    int64_t node_count, node_room;
    shl_entry_node *entries;
    int64_t count, room;
    char *passing; /* texts of this batch alone: a length, then the bytes */
    int64_t passing_used, passing_room;
    char *scratch; /* a string whose escapes are being resolved */
    int64_t scratch_room;
    char *printed; /* the batch as text */
    int64_t printed_room;
    int32_t place; /* JSON: what the last thing between entries was */
    int32_t is_aside; /* what is being read is an error, or a field that is none of our own */
    int32_t has_process, has_f; /* whether clients' entries have one: 0: not known yet */
};

/* Where the fields of the entry that is being read stand. */
typedef struct {
    int32_t node[FIELDS]; /* SHL_ABSENT where there is none */
    shl_slice slice[FIELDS];
    const char *begin;
    int64_t line;
    int32_t root;
} shl_fields;

void shl_fields_clear(shl_fields *fields);
/* Takes in an entry whose nodes were read: SHL_READ_FINE or what is wrong. */
int shl_take_fields(shl_entries *entries, const shl_fields *fields);
/* The field that a name is, or FIELDS. */
int shl_field_of(int64_t id);
int shl_more_nodes(shl_entries *entries);
/* An id for the text; SHL_ABSENT: no memory. */
int64_t shl_keep_text(shl_entries *entries, shl_slice text, int is_other);
/* Room for a string of this length; NULL: no memory. */
char *shl_scratch(shl_entries *entries, int64_t length);
char *shl_printed(shl_entries *entries, int64_t length);
int shl_is_json_number(shl_slice token);
/* SHL_READ_NO_VALUE, with what was met in its place. */
int shl_no_value(shl_entries *entries, shl_slice met, const shl_cursor *cursor);
/* One escape of a dialect, behind its backslash: how many bytes of the text it takes, 0: it is
 * none. */
typedef int64_t shl_resolve(const char *at, const char *end, char **to);
/* A string that has escapes, without its quotes. */
int shl_add_escaped(shl_entries *entries, const shl_cursor *cursor, shl_slice text,
                    shl_resolve *resolve);
/* A code point as UTF-8; how many bytes. */
int64_t shl_put_utf8(char *to, uint32_t point);
/* uXXXX, or a pair of them that is one code point, as UTF-8; how many bytes of the text, 0: it is
 * none. */
int64_t shl_put_unit(const char *at, const char *end, char **to);

/* The number of a new node; -1: no memory. */
static inline int32_t shl_add_node(shl_entries *entries, uint8_t kind, int64_t number)
{
    if (entries->node_count == entries->node_room && !shl_more_nodes(entries))
        return -1;
    int32_t node = (int32_t)entries->node_count++;
    entries->nodes[node] = (shl_node){kind, node + 1, number};
    return node;
}

static inline int shl_add_text(shl_entries *entries, uint8_t kind, shl_slice text)
{
    int64_t id = shl_keep_text(entries, text, kind == SHL_NODE_OTHER);
    return id != SHL_ABSENT && shl_add_node(entries, kind, id) >= 0 ? SHL_READ_FINE
                                                                    : SHL_READ_STOPPED;
}

/* A dialect's parts: moves to the next entry, if there is one; reads it and takes it in. */
typedef int shl_find(shl_entries *entries, shl_cursor *cursor, int32_t last, int *found);
typedef int shl_read_one(shl_entries *entries, shl_cursor *cursor);
int shl_read_whole(shl_entries *entries, shl_cursor *cursor, int32_t last, shl_find *find,
                   shl_read_one *read);

/* The dialects: as many whole entries as there are, or as a batch takes; the cursor is moved behind
 * them. SHL_READ_FINE, SHL_MORE, or what is wrong. */
int shl_entries_edn(shl_entries *entries, shl_cursor *cursor, int32_t last);
int shl_entries_json(shl_entries *entries, shl_cursor *cursor, int32_t last);

#endif
