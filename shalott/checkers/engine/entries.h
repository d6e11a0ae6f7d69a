/* Histories as a stream of entries, each with its values as a flat tree.
 *
 * What decides about more than the value of one operation (transactions, logs, queues) reads this:
 * an entry is one map of the file, its values are nodes in the order of the text. Memory holds one
 * batch of entries and each distinct text once; it does not grow with the file. Text is EDN, or
 * JSON with the same tree: a keyword and a string of one text have one id, so the two are alike to
 * a checker. */
#ifndef SHL_ENTRIES_H
#define SHL_ENTRIES_H

#include "read.h"

enum { SHL_ENTRIES_EDN = 0, SHL_ENTRIES_JSON = 1 };

enum {
    SHL_NODE_NIL = 0,
    SHL_NODE_FALSE = 1,
    SHL_NODE_TRUE = 2,
    SHL_NODE_INTEGER = 3,
    SHL_NODE_KEYWORD = 4, /* its text is without the colon */
    SHL_NODE_TEXT = 5,    /* a string, its escapes resolved, UTF-8 */
    SHL_NODE_OTHER = 6,   /* symbol, float, character, ratio, large integer, tagged: as written */
    SHL_NODE_LIST = 7,    /* a vector or a list */
    SHL_NODE_MAP = 8,
    SHL_NODE_SET = 9,
};

/* Processes that are no numbers. */
enum {
    SHL_NEMESIS = -2147483647,
    SHL_NO_PROCESS = -2147483646, /* no entry of the file has one */
};

enum { SHL_ABSENT = -1 };

typedef struct {
    uint8_t kind;
    int32_t next;   /* the node behind this one and all within it */
    int64_t number; /* an integer; a text's id; how many children, a map's keys and values each */
} shl_node;

typedef struct {
    uint8_t type;    /* SHL_OK, SHL_FAIL, SHL_INFO, SHL_INVOKE */
    int32_t f;       /* its text's id; SHL_ABSENT: no entry of the file has one */
    int64_t process; /* or SHL_NEMESIS, SHL_NO_PROCESS */
    int64_t index;   /* as the file says; SHL_ABSENT: it doesn't */
    int64_t time;    /* likewise */
    int64_t line;    /* where it begins, from 1 */
    int32_t value;   /* a node, or SHL_ABSENT */
    int32_t error;   /* likewise */
    int32_t key;     /* likewise: Porcupine's and our own entries may have one beside the value */
    int32_t root;    /* the whole map: its keys and values are children */
} shl_entry_node;

/* Valid until the reader is fed again. */
typedef struct {
    int64_t count;
    const shl_entry_node *entries;
    const shl_node *nodes;
    int64_t node_count;
} shl_batch;

typedef struct shl_entries shl_entries;

/* dialect: SHL_ENTRIES_EDN or _JSON. NULL: no memory. */
shl_entries *shl_entries_new(int32_t dialect, shl_budget *budget);
void shl_entries_free(shl_entries *entries);
/* Reads whole entries, some thousand at most. Returns how many of the bytes were used up: the rest
 * is to be given again, with more behind it. -1: malformed, or the budget stopped it: see the
 * state. last: nothing comes behind these bytes; then feed it until the state says `ended`. */
int64_t shl_entries_feed(shl_entries *entries, const char *bytes, int64_t length, int32_t last);
/* What the last feeding read. */
const shl_batch *shl_entries_batch(const shl_entries *entries);
/* Of a shl_reading: entries, nemesis, line, torn, ended, the error and its place. */
const shl_reading *shl_entries_state(const shl_entries *entries);
/* The bytes of an id's text, not ended by a zero. An id from 0 is the text's for as long as the
 * reader lives. Long texts and floats of errors, and of fields that are none of the entry's own,
 * have an id below SHL_ABSENT instead: it is valid until the next feed, and equal texts may have
 * several. */
const char *shl_entries_text(const shl_entries *entries, int64_t id, int64_t *length);
/* The id of a text, a new one if it has none yet; SHL_ABSENT: no memory. */
int32_t shl_entries_id(shl_entries *entries, const char *text, int64_t length);
/* How many ids there are. */
int64_t shl_entries_text_count(const shl_entries *entries);
/* The entries of the last feeding as text of a dialect, one a line, until the next call. JSON has
 * fewer kinds than EDN: keywords become strings, sets arrays, names of maps strings. NULL: no
 * memory. */
const char *shl_entries_print(shl_entries *entries, int32_t dialect, int64_t *length);

#endif
