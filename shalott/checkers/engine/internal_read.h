/* What the readers of text share: slices, entries, tables of distinct slices, the pairing. */
#ifndef SHL_INTERNAL_READ_H
#define SHL_INTERNAL_READ_H

#include "read.h"

#include <stddef.h>

enum { SHL_MORE = -1 }; /* the bytes end before the entry does */

typedef struct {
    const char *at;
    int64_t length;
} shl_slice;

enum { SHL_NOTHING = 0, SHL_INTEGER = 1, SHL_FORM = 2 };

typedef struct {
    uint8_t kind;
    int64_t number;
    shl_slice slice; /* the whole text of it */
} shl_value;

enum { SHL_NO_TYPE = 4 };

/* One line of a history. id is what a completion has in common with its invocation. */
typedef struct {
    int64_t id;
    int64_t process;
    uint8_t type;
    uint8_t has_key;
    uint8_t has_time;
    uint8_t has_offset;
    uint8_t has_index;
    uint8_t empty;   /* it failed since there was nothing to take */
    uint8_t repeats; /* a completion without a value means the invocation's */
    uint8_t once;    /* an id is one operation's, not a process's */
    shl_slice f;     /* nothing: not said again */
    shl_slice key;
    shl_slice error; /* nothing: none is told */
    shl_value value;
    int64_t time;
    int64_t offset; /* where a log put what was sent: the result of sending */
    int64_t line;
    int64_t index;
} shl_entry;

/* Where a parser stands. */
typedef struct {
    const char *at;
    const char *end;
    int64_t line;
} shl_cursor;

/* Distinct slices, numbered in order of first appearance. */
typedef struct {
    char *bytes;
    int64_t bytes_used, bytes_room;
    int64_t *ends, *lines;
    uint32_t *hashes;
    int64_t count, room;
    int32_t *slots; /* number + 1; 0 free */
    int64_t slot_count;
} shl_names;

/* From a process (or an operation's number) to its newest row. */
typedef struct {
    int64_t *ids;
    int64_t *rows; /* row + 1 while it is open, -(row + 1) once it is completed; 0 free */
    int64_t count, slot_count;
} shl_rows_by_id;

struct shl_reader {
    shl_reading state;
    int32_t dialect;
    int32_t keyed;
    int32_t by_index;
    shl_budget *budget;
    void *columns[SHL_READ_COLUMNS];
    int64_t room; /* rows that the columns have room for */
    int32_t *told; /* pairs: a row that failed, which error it told */
    int64_t told_room; /* pairs */
    shl_names names[SHL_READ_TABLES];
    shl_rows_by_id open;
    shl_rows_by_id drains; /* of processes that tell each dequeue of a drain by itself */
    int64_t last_time, first_index, last_index; /* of the entries so far */
    int32_t has_index, gapless; /* an index was met; none was left out */
    int64_t invoked_line; /* of the entry before */
    int64_t most_lines;   /* EDN: of the longest entry, in lines */
    shl_names faults;     /* a recording: the fs of the nemesis */
    char closer;          /* EDN: what closes the vector that the operations are in; 0: none */
    int32_t *idle;        /* Violin: processes that have nothing open */
    int64_t idle_count, idle_room;
    int32_t processes;
    int64_t logger_at;    /* a Jepsen log: where its logger's name stands in a line */
    const char *begin;    /* the bytes that are being read */
    int64_t line_begin;   /* how far before them their first line began */
};

/* A number for the slice, or -1: no memory. */
int32_t shl_name(shl_names *names, shl_slice slice, int64_t line, shl_budget *budget);
void shl_names_free(shl_names *names, shl_budget *budget);

static inline shl_slice shl_named(const shl_names *names, int32_t number)
{
    int64_t begin = number ? names->ends[number - 1] + 1 : 0; /* behind the separator */
    return (shl_slice){names->bytes + begin, names->ends[number] - begin};
}

/* The place of id's row, 0 in it if there was none; NULL: no memory. */
int64_t *shl_row_of(shl_rows_by_id *rows, int64_t id, shl_budget *budget);
void shl_rows_free(shl_rows_by_id *rows, shl_budget *budget);

/* Bytes from the beginning of the line that `at` stands in. */
int64_t shl_distance_in_line(const shl_reader *reader, const char *at);
/* Says what is wrong, and where; returns the code. */
int shl_complain(shl_reader *reader, int code, int64_t line, const char *at);
void shl_complain_of(shl_reader *reader, shl_slice word);

/* Keeps the error of an operation that failed; 0: no memory. */
int shl_keep_error(shl_reader *reader, const shl_entry *entry, int64_t row);
/* Notes one of SHL_ODD_..., and the line where it was met first. */
void shl_note_odd(shl_reader *reader, int what, int64_t line);
/* Notes what is odd about an entry's time and index. */
void shl_note_disorder(shl_reader *reader, const shl_entry *entry);

static inline void shl_note_order(shl_reader *reader, const shl_entry *entry)
{
    int in_time = !entry->has_time || entry->time >= reader->last_time;
    int in_turn = !entry->has_index || (reader->gapless && entry->index == reader->last_index + 1);
    if (!in_time || !in_turn) {
        shl_note_disorder(reader, entry);
        return;
    }
    if (entry->has_time)
        reader->last_time = entry->time;
    reader->last_index += entry->has_index;
}
/* Takes in an entry: SHL_READ_FINE or what is wrong. */
int shl_take_entry(shl_reader *reader, const shl_entry *entry, const char *at);
void shl_take_nemesis(shl_reader *reader, int64_t line);

/* The dialects: each reads as many whole entries as there are, and moves the cursor behind them.
 * SHL_READ_FINE, SHL_MORE, or what is wrong. */
int shl_read_edn(shl_reader *reader, shl_cursor *cursor, int32_t last);
int shl_read_recording_line(shl_reader *reader, shl_cursor *line);
int shl_read_jepsen_line(shl_reader *reader, shl_cursor *line);
int shl_read_violin_line(shl_reader *reader, shl_cursor *line);

/* Whether text holds both keys that every operation has. */
int shl_has_operation(shl_slice text);
/* At the end of the file: does the nemesis do what clients do? SHL_READ_FINE or what is wrong. */
int shl_check_faults(shl_reader *reader);
/* What every operation has once, in EDN and in JSON. */
#define SHL_EDN_MARK ":process"
#define SHL_JSON_MARK "\"process\""
/* Whether an entry that begins in a line and ends at the cursor is on several lines and is two. */
int shl_spans_two(shl_reader *reader, const char *begin, int64_t line, const shl_cursor *cursor,
                  const char *mark);
/* At the end of the file: are these bytes the beginning of one entry, and no more? */
int shl_check_torn(shl_reader *reader, const shl_cursor *tail, const char *mark);

/* Parts of the EDN reader that logs use. A complaint stands at the cursor. */
int shl_edn_blank(shl_cursor *cursor);
int shl_edn_value(shl_cursor *cursor, shl_value *value);
shl_slice shl_edn_token(shl_cursor *cursor);
int shl_edn_integer(shl_slice token, int64_t *number);
uint8_t shl_entry_type(shl_slice word);

static inline int shl_is(shl_slice slice, const char *text, int64_t length)
{
    return slice.length == length && __builtin_memcmp(slice.at, text, (size_t)length) == 0;
}
#define SHL_IS(slice, text) shl_is((slice), (text), (int64_t)sizeof(text) - 1)

/* An error, or what stands for the value of a dequeue that failed: there was nothing to take. */
static inline int shl_says_empty(shl_slice word)
{
    return SHL_IS(word, "empty") || SHL_IS(word, "exhausted");
}

static inline int is_digit(char byte)
{
    return (uint8_t)(byte - '0') < 10;
}

static inline const char *digits(const char *at, const char *end)
{
    while (at < end && is_digit(*at))
        at++;
    return at;
}

#endif
