/* Histories as text, read into columns: EDN, our own recording, logs of Jepsen and of Violin.
 *
 * A reader is fed pieces of a file and keeps what it could not finish for the next one. It pairs
 * completions with invocations as it goes, so what it holds is one row an operation. What is not
 * an integer is kept as a distinct slice of bytes, once each, for Python to decode. */
#ifndef SHL_READ_H
#define SHL_READ_H

#include "engine.h"

enum {
    SHL_READ_EDN = 0,        /* maps, one after the other or in one vector: Jepsen, Porcupine kv */
    SHL_READ_RECORDING = 1,  /* our own JSON lines: completions name their invocation's index */
    SHL_READ_JEPSEN_LOG = 2, /* "INFO  jepsen.util - PROCESS :type :f value" */
    SHL_READ_VIOLIN = 3,     /* "[id] call add(1)", "[id] return 1" */
};

/* What is wrong with a file. */
enum {
    SHL_READ_FINE = 0,
    SHL_READ_STOPPED = 1,    /* the budget: see budget->stopped */
    SHL_READ_UNEXPECTED = 2, /* a byte that can't stand where it does */
    SHL_READ_MISMATCHED = 3, /* a bracket closed by one of another kind */
    SHL_READ_TOO_DEEP = 4,   /* brackets in brackets */
    SHL_READ_ODD_MAP = 5,    /* a key without a value */
    SHL_READ_NO_MAP = 6,     /* something stands where an operation should */
    SHL_READ_CUT_LINE = 7,   /* a line ends within an operation, and it is not the last one */
    SHL_READ_UNCLOSED = 8,   /* an operation goes on where another one seems to begin */
    SHL_READ_COMMENTED = 9,  /* an operation stands in a comment or a discarded form */
    SHL_READ_NO_PROCESS = 10,
    SHL_READ_NO_TYPE = 11,
    SHL_READ_NO_F = 12,
    SHL_READ_BAD_PROCESS = 13,
    SHL_READ_BAD_TYPE = 14,
    SHL_READ_BAD_F = 15,
    SHL_READ_BAD_TIME = 16,
    SHL_READ_NOT_KEYED = 17, /* the value is no [key value] */
    SHL_READ_NO_INDEX = 18,
    SHL_READ_INVOKED_TWICE = 20,
    SHL_READ_NOT_INVOKED = 21,
    SHL_READ_OTHER_F = 22,
    SHL_READ_OTHER_KEY = 23,
    SHL_READ_TOO_MANY = 24,
    SHL_READ_ODD_LINE = 25,  /* a line of a log is no operation, but has parts of one */
    SHL_READ_NEMESIS_F = 26, /* the nemesis does what clients do */
    SHL_READ_BAD_INDEX = 27,
    SHL_READ_NO_VALUE = 28,     /* a token that is no value */
    SHL_READ_FIELD_TWICE = 29,  /* an operation says a field twice */
    SHL_READ_SOME_PROCESS = 30, /* an entry has a process, the first one has none */
    SHL_READ_SOME_F = 31,
};

/* What a line of a history says of an operation. */
enum { SHL_OK = 0, SHL_FAIL = 1, SHL_INFO = 2, SHL_INVOKE = 3 };

/* Columns of the operations, and their types. Values are two columns: kind (0 nothing, 1 integer,
 * 2 form) and number (the integer, or which form). */
enum {
    SHL_READ_F = 0,                /* int32: which word */
    SHL_READ_KEY = 1,              /* int32: which key, -1 where there is none */
    SHL_READ_ARGUMENT_KIND = 2,    /* uint8 */
    SHL_READ_ARGUMENT_NUMBER = 3,  /* int64 */
    SHL_READ_RESULT_KIND = 4,      /* uint8 */
    SHL_READ_RESULT_NUMBER = 5,    /* int64 */
    SHL_READ_TYPE = 6,             /* uint8: 0 ok, 1 fail, 2 info */
    SHL_READ_PROCESS = 7,          /* int32 */
    SHL_READ_CALL = 8,             /* int32 */
    SHL_READ_RET = 9,              /* int32: SHL_NEVER where it crashed */
    SHL_READ_CALL_NS = 10,         /* int64 */
    SHL_READ_RET_NS = 11,          /* int64: -1 where there is none */
    SHL_READ_LINE = 12,            /* int32: of the invocation */
    SHL_READ_ENTRY = 13,           /* int32: which entry of the file, from 0 */
    SHL_READ_COLUMNS = 14,
};

/* Tables of distinct slices. */
enum {
    SHL_READ_WORDS = 0,
    SHL_READ_KEYS = 1,
    SHL_READ_FORMS = 2,
    SHL_READ_ERRORS = 3,
    SHL_READ_TABLES = 4,
};

/* What is odd about a history, and yet may be meant. */
enum {
    SHL_ODD_REUSED = 0,      /* a process went on after an operation of it had crashed */
    SHL_ODD_TIME_BACK = 1,   /* an entry's time is before that of the one in front of it */
    SHL_ODD_INDEX_BACK = 2,  /* so is its index */
    SHL_ODD_INDEX_TWICE = 3, /* its index was given already */
    SHL_ODDITIES = 4,
};

/* How far a reader is, and what it met. */
typedef struct {
    int64_t oddities; /* in all */
    int64_t odd[SHL_ODDITIES];
    int64_t odd_line[SHL_ODDITIES]; /* where each was met first */
    int64_t operations;
    int64_t ranks;
    int64_t entries; /* invocations and completions, those of the nemesis too */
    int64_t nemesis; /* of these, the nemesis's */
    int64_t ignored; /* lines of a log that are no operations */
    int64_t errors;  /* operations that failed and told an error */
    int64_t line;    /* where it stands, from 1 */
    int64_t torn;    /* 0, or the line where an entry begins that the end of the file cuts off */
    int32_t timed;   /* every entry has a clock time, but infos perhaps */
    int32_t keyed;   /* some entry names a key */
    int32_t crowded; /* two entries begin on one line */
    int32_t begun;   /* a recording's first mark was met */
    int32_t ended;   /* and its end mark */
    int32_t error;
    int64_t error_line;
    int64_t error_column;
    int64_t error_id;    /* the process, or the operation's number */
    int64_t error_other; /* the line of the invocation that it clashes with */
    char error_word[64]; /* what was met, cut short */
} shl_reading;

typedef struct shl_reader shl_reader;

enum { SHL_READ_KEYED = 1, SHL_READ_BY_INDEX = 2 };

/* how: EDN values are [key value]; an EDN entry's index is taken for its time. NULL: no memory. */
shl_reader *shl_reader_new(int32_t dialect, int32_t how, shl_budget *budget);
void shl_reader_free(shl_reader *reader);
const shl_reading *shl_reader_state(const shl_reader *reader);
/* How many of these bytes were used up: the rest is to be given again, with more behind it. -1: the
 * file is malformed, see the state. last: nothing comes behind these bytes. */
int64_t shl_reader_feed(shl_reader *reader, const char *bytes, int64_t length, int32_t last);
/* A column, the caller's from now on, who gives it to shl_column_free; NULL: there are no rows. */
void *shl_reader_column(shl_reader *reader, int32_t column);
void shl_column_free(void *memory);
/* The rows that failed with an error, and which one: as many as state->errors says. */
void shl_reader_errors(const shl_reader *reader, int32_t *rows, int32_t *errors);
/* All columns of few rows at once, one behind the other: argument and result (numbers), place (the
 * entry if lines are crowded, else the line), and if it is timed call_ns, ret_ns; f, key, process,
 * call, ret; the kinds of argument and result, type. */
void shl_reader_copy(const shl_reader *reader, int64_t *wide, int32_t *narrow, uint8_t *bytes);
/* A table, as long as the reader lives: its slices' bytes, a separator behind each, where each
 * ends, and the line where each stood first. A slice may hold the separator, but no UTF-8 does. */
enum { SHL_SEPARATOR = 0xff };
typedef struct {
    int64_t count;
    int64_t bytes_used;
    const char *bytes;
    const int64_t *ends;
    const int64_t *lines;
} shl_slices;
void shl_reader_slices(const shl_reader *reader, int32_t table, shl_slices *slices);

/* --- cells ------------------------------------------------------------------------------------*/

/* Cells of JSON objects, read into columns: what is asked of each by its keys.
 *
 * An empty cell is an object without keys.
 * A cell is the text of one object, as histories have them in their column `extra`. Most are flat
 * and plain, and only those are read here: {"key": 1, "other": "text", "third": true}. Any other is
 * marked as odd, and nothing is said of it: the caller reads it in another way. So what is read
 * here is what any reader of JSON reads there. */

/* What is asked of a key. */
enum {
    SHL_CELL_INTEGER = 0, /* SHL_CELL_ABSENT if it is not there, or null */
    SHL_CELL_TRUTH = 1,   /* 0 or 1 */
    SHL_CELL_TEXT = 2,    /* the number of the text among the texts, in the order of their coming */
};

typedef struct shl_texts shl_texts;

/* Texts, each once. NULL: no memory. */
shl_texts *shl_texts_new(void);
void shl_texts_free(shl_texts *texts);
int64_t shl_texts_count(const shl_texts *texts);
const char *shl_texts_text(const shl_texts *texts, int64_t number, int64_t *length);

/* Read the cells text[ends[row] .. ends[row + 1]) of the n rows. Key k is the keys' bytes
 * key_ends[k - 1] .. key_ends[k]; what it says in row i goes to values[k * n + i], `absent` if
 * nothing. odd[i] is 1 where nothing was read. Returns how many are odd, -1 if there is no
 * memory. */
int64_t shl_cells_read(const char *text, const int64_t *ends, const int64_t *rows, int64_t n,
                       const char *keys, const int32_t *key_ends, const uint8_t *kinds,
                       int32_t key_count, int64_t absent, int64_t *values, uint8_t *odd,
                       shl_texts *texts);

/* Number the cells by what they say, equal ones alike: numbers[i] is that of row rows[i], or of
 * row i if `rows` is NULL, and the texts have the cell of each number. Returns how many there are,
 * -1 if there is no memory, -2 as soon as there are more than `most`. */
int64_t shl_cells_number(const char *text, const int64_t *ends, const int64_t *rows, int64_t n,
                         int64_t most, int32_t *numbers, shl_texts *texts);

#endif
