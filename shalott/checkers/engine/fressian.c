/* Fressian (https://github.com/Datomic/fressian) to EDN, text to text: no value is kept, but what
 * its cache refers to later, as printed. See reading/fressian.py, which knows all of it. */
#include "fressian.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 200, ENOUGH = 1 << 16, MOST_STRUCTS = 64, MOST_CACHED = 1 << 20 };

/* Codes: those of org.fressian.impl.Codes. */
enum {
    CACHED_0 = 0x80, STRUCT_0 = 0xa0, MAP = 0xc0, SET = 0xc1, SYMBOL = 0xc9, KEYWORD = 0xca,
    GET_CACHED = 0xcc, PUT_CACHED = 0xcd, STRING_0 = 0xda, STRING_CHUNK = 0xe2, STRING = 0xe3,
    LIST_0 = 0xe4, LIST = 0xec, CLOSED_LIST = 0xed, STRUCT_TYPE = 0xef, STRUCT = 0xf0,
    YES = 0xf5, NO = 0xf6, NIL = 0xf7, INT64 = 0xf8, DOUBLE = 0xfa, DOUBLE_0 = 0xfb,
    DOUBLE_1 = 0xfc, END = 0xfd, MINUS_ONE = 0xff,
};

/* What a tagged value is. */
enum { OTHER_TAG, OPERATION, SET_TAG, RECORD, ENTRY, SAME };

typedef struct {
    int kind;
    int64_t fields;
} structure;

typedef struct {
    int64_t begin, length; /* in `texts`; length -1: not read yet */
} cached;

typedef struct {
    char *bytes;
    int64_t used, room;
} text;

struct shl_fressian {
    shl_budget *budget;
    const uint8_t *at, *end;
    text out, texts; /* what is printed; what the cache holds */
    cached *cache;
    int64_t cache_count, cache_room;
    structure structs[MOST_STRUCTS];
    int32_t struct_count, depth, failed, no_memory;
};

shl_fressian *shl_fressian_new(const char *bytes, int64_t length, shl_budget *budget)
{
    shl_fressian *reader = shl_alloc_zeroed(budget, sizeof *reader);
    if (!reader)
        return NULL;
    reader->budget = budget;
    reader->at = (const uint8_t *)bytes;
    reader->end = reader->at + length;
    return reader;
}

void shl_fressian_free(shl_fressian *reader)
{
    if (!reader)
        return;
    shl_budget *budget = reader->budget;
    shl_free(budget, reader->out.bytes, reader->out.room);
    shl_free(budget, reader->texts.bytes, reader->texts.room);
    shl_free(budget, reader->cache, reader->cache_room * (int64_t)sizeof *reader->cache);
    shl_free(budget, reader, sizeof *reader);
}

int32_t shl_fressian_ended(const shl_fressian *reader)
{
    return !reader->failed && reader->at == reader->end;
}

/* --- text --------------------------------------------------------------------------------------*/

static int reserve(shl_fressian *reader, text *to, int64_t more)
{
    if (to->used + more <= to->room)
        return 1;
    int64_t room = to->room ? to->room * 2 : 4096;
    while (room < to->used + more)
        room *= 2;
    char *grown = to->bytes ? shl_resize(reader->budget, to->bytes, to->room, room)
                            : shl_alloc(reader->budget, room);
    if (!grown) {
        reader->failed = reader->no_memory = 1;
        return 0;
    }
    to->bytes = grown;
    to->room = room;
    return 1;
}

static void put(shl_fressian *reader, const char *bytes, int64_t length)
{
    if (!reserve(reader, &reader->out, length))
        return;
    if (length)
        memcpy(reader->out.bytes + reader->out.used, bytes, (size_t)length);
    reader->out.used += length;
}

static void put_text(shl_fressian *reader, const char *zero_ended)
{
    put(reader, zero_ended, (int64_t)strlen(zero_ended));
}

static void put_integer(shl_fressian *reader, int64_t number)
{
    char digits[24];
    put(reader, digits, snprintf(digits, sizeof digits, "%lld", (long long)number));
}

/* The shortest that is read as the same. */
static void put_double(shl_fressian *reader, double number)
{
    char digits[40];
    if (isnan(number) || isinf(number)) {
        put_text(reader, isnan(number) ? "##NaN" : number > 0 ? "##Inf" : "##-Inf");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    put_text(reader, digits);
    if (!strpbrk(digits, ".e"))
        put_text(reader, ".0");
}

static void put_string(shl_fressian *reader, const uint8_t *from, int64_t length)
{
    static const char ESCAPED[] = "\"\\\n\t\r\b\f", NAMES[] = "\"\\ntrbf";
    put(reader, "\"", 1);
    for (int64_t i = 0; i < length; i++) {
        char byte = (char)from[i];
        const char *met = byte ? strchr(ESCAPED, byte) : NULL;
        if (from[i] == 0xed && i + 1 < length && from[i + 1] >= 0xa0)
            reader->failed = 1; /* half of a code point: another reader joins them */
        if (met)
            put(reader, (char[]){'\\', NAMES[met - ESCAPED]}, 2);
        else
            put(reader, &byte, 1);
    }
    put(reader, "\"", 1);
}

/* --- values ------------------------------------------------------------------------------------*/

static int value(shl_fressian *reader);

static int fail(shl_fressian *reader)
{
    reader->failed = 1;
    return 0;
}

static int code_of(shl_fressian *reader)
{
    return reader->at < reader->end ? *reader->at++ : (fail(reader), -1);
}

static int is_there(shl_fressian *reader, int64_t length)
{
    return (length >= 0 && length <= reader->end - reader->at) || fail(reader);
}

/* An integer that begins with this code; 0: it is none, or cut off. */
static int integer(shl_fressian *reader, int code, int64_t *number)
{
    static const struct {
        int first, zero, length;
    } PACKED[] = {{0x7c, 0x7e, 6}, {0x78, 0x7a, 5}, {0x74, 0x76, 4},
                  {0x70, 0x72, 3}, {0x60, 0x68, 2}, {0x40, 0x50, 1}};
    int length = 8;
    uint64_t bits = 0;
    if (code == MINUS_ONE || (code >= 0 && code < 0x40)) {
        *number = code == MINUS_ONE ? -1 : code;
        return 1;
    }
    if (code < 0 || (code >= CACHED_0 && code != INT64))
        return 0;
    if (code != INT64) {
        size_t row = 0;
        while (code < PACKED[row].first)
            row++;
        length = PACKED[row].length;
        bits = (uint64_t)(int64_t)(code - PACKED[row].zero);
    }
    if (!is_there(reader, length))
        return 0;
    for (int i = 0; i < length; i++)
        bits = bits << 8 | *reader->at++;
    *number = (int64_t)bits;
    return 1;
}

/* How many items or bytes: never more than bytes are left. */
static int count(shl_fressian *reader, int64_t *number)
{
    return (integer(reader, code_of(reader), number) && is_there(reader, *number)) ||
           fail(reader);
}

static int string(shl_fressian *reader, int code)
{
    int64_t length = code - STRING_0;
    if (code == STRING_CHUNK || (code == STRING && !count(reader, &length)) ||
        !is_there(reader, length))
        return fail(reader);
    put_string(reader, reader->at, length);
    reader->at += length;
    return !reader->failed;
}

/* Items between brackets, a comma behind every second one of a map. */
static int items(shl_fressian *reader, int code, const char *open, const char *close)
{
    int64_t left = code - LIST_0, done = 0;
    int is_map = *open == '{';
    if (code < LIST_0 || code > CLOSED_LIST || (code == LIST && !count(reader, &left)))
        return fail(reader);
    put_text(reader, open);
    for (;; done++) {
        if (code == CLOSED_LIST ? reader->at < reader->end && *reader->at == END : done == left)
            break;
        if (done)
            put_text(reader, is_map && done % 2 == 0 ? ", " : " ");
        if (!value(reader))
            return 0;
    }
    reader->at += code == CLOSED_LIST;
    put_text(reader, close);
    return (!is_map || done % 2 == 0) || fail(reader);
}

/* A list, or nil for an empty one. */
static int collection(shl_fressian *reader, const char *open, const char *close)
{
    int code = code_of(reader);
    if (code != NIL)
        return items(reader, code, open, close);
    put_text(reader, open);
    put_text(reader, close);
    return 1;
}

/* A string that was just printed from `begin` on, without its quotes. */
static int without_quotes(shl_fressian *reader, int64_t begin)
{
    char *from = reader->out.bytes + begin;
    int64_t length = reader->out.used - begin;
    if (length < 3 || *from != '"' || memchr(from, '\\', (size_t)length))
        return fail(reader);
    memmove(from, from + 1, (size_t)length - 2);
    reader->out.used -= 2;
    return 1;
}

/* A namespace, or nil, and a name. */
static int named(shl_fressian *reader, const char *before)
{
    put_text(reader, before);
    int64_t begin = reader->out.used;
    if (!value(reader))
        return 0;
    if (reader->out.used - begin == 3 && !memcmp(reader->out.bytes + begin, "nil", 3)) {
        reader->out.used = begin;
    } else {
        if (!without_quotes(reader, begin))
            return 0;
        put_text(reader, "/");
    }
    begin = reader->out.used;
    return value(reader) && without_quotes(reader, begin);
}

/* The last field of an operation: a map of more fields, or nil. */
static int more_fields(shl_fressian *reader)
{
    int64_t begin = reader->out.used;
    put_text(reader, ", ");
    if (!value(reader))
        return 0;
    char *from = reader->out.bytes + begin + 2;
    int64_t length = reader->out.used - begin - 2;
    if (*from != '{' || length == 2) { /* nil or {} */
        reader->out.used = begin;
        return (*from == '{' || (length == 3 && *from == 'n')) || fail(reader);
    }
    memmove(from, from + 1, (size_t)length - 2);
    reader->out.used -= 2;
    return 1;
}

static int operation(shl_fressian *reader)
{
    static const char *const FIELDS[] = {"{:index ", ", :time ", ", :type ",
                                         ", :process ", ", :f ", ", :value "};
    for (int field = 0; field < 6; field++) {
        int64_t begin = reader->out.used;
        put_text(reader, FIELDS[field]);
        if (!value(reader))
            return 0;
        if (field == 1 && reader->out.bytes[reader->out.used - 1] == '1' &&
            reader->out.bytes[reader->out.used - 2] == '-')
            reader->out.used = begin; /* -1: it has none */
    }
    if (!more_fields(reader))
        return 0;
    put_text(reader, "}");
    return 1;
}

static int structured(shl_fressian *reader, const structure *of)
{
    int64_t begin;
    switch (of->kind) {
    case OPERATION:
        return operation(reader);
    case SET_TAG:
        return collection(reader, "#{", "}");
    case RECORD: /* its class is not kept */
        begin = reader->out.used;
        if (!value(reader))
            return 0;
        reader->out.used = begin;
        return value(reader);
    case ENTRY:
        put_text(reader, "[");
        if (!value(reader))
            return 0;
        put_text(reader, " ");
        if (!value(reader))
            return 0;
        put_text(reader, "]");
        return 1;
    case SAME:
        return value(reader);
    default:
        return fail(reader);
    }
}

static int kind_of(const char *tag, int64_t length, int64_t fields)
{
    static const struct {
        const char *tag;
        int kind;
        int64_t fields;
    } KNOWN[] = {{"\"jepsen.history.Op\"", OPERATION, 7}, {"\"persistent-hash-set\"", SET_TAG, 1},
                 {"\"persistent-sorted-set\"", SET_TAG, 1}, {"\"set\"", SET_TAG, 1},
                 {"\"record\"", RECORD, 2}, {"\"map-entry\"", ENTRY, 2}, {"\"vec\"", SAME, 1},
                 {"\"atom\"", SAME, 1}, {"\"throwable\"", SAME, 1}, {"\"multiset\"", SAME, 1}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if ((int64_t)strlen(KNOWN[i].tag) == length && !memcmp(KNOWN[i].tag, tag, (size_t)length))
            return KNOWN[i].fields == fields ? KNOWN[i].kind : OTHER_TAG;
    return OTHER_TAG;
}

static int new_struct(shl_fressian *reader)
{
    int64_t begin = reader->out.used, fields;
    if (reader->struct_count == MOST_STRUCTS || !value(reader) || !count(reader, &fields))
        return fail(reader);
    structure *made = &reader->structs[reader->struct_count++];
    *made = (structure){
        kind_of(reader->out.bytes + begin, reader->out.used - begin, fields), fields};
    reader->out.used = begin;
    return structured(reader, made);
}

static int known_struct(shl_fressian *reader, int64_t number)
{
    return number >= 0 && number < reader->struct_count
               ? structured(reader, &reader->structs[number])
               : fail(reader);
}

/* --- the cache ---------------------------------------------------------------------------------*/

static int put_cached(shl_fressian *reader)
{
    int64_t begin = reader->out.used, place = reader->cache_count;
    if (place == reader->cache_room) {
        int64_t room = place ? place * 2 : 64, item = (int64_t)sizeof *reader->cache;
        void *grown = reader->cache
                          ? shl_resize(reader->budget, reader->cache, place * item, room * item)
                          : shl_alloc(reader->budget, room * item);
        if (!grown || room > MOST_CACHED) {
            reader->no_memory = !grown;
            if (grown) {
                reader->cache = grown;
                reader->cache_room = room;
            }
            return fail(reader);
        }
        reader->cache = grown;
        reader->cache_room = room;
    }
    reader->cache[reader->cache_count++] = (cached){0, -1};
    if (!value(reader))
        return 0;
    int64_t length = reader->out.used - begin;
    if (!reserve(reader, &reader->texts, length))
        return 0;
    memcpy(reader->texts.bytes + reader->texts.used, reader->out.bytes + begin, (size_t)length);
    reader->cache[place] = (cached){reader->texts.used, length};
    reader->texts.used += length;
    return 1;
}

static int get_cached(shl_fressian *reader, int64_t number)
{
    if (number < 0 || number >= reader->cache_count || reader->cache[number].length < 0)
        return fail(reader);
    put(reader, reader->texts.bytes + reader->cache[number].begin, reader->cache[number].length);
    return !reader->failed;
}

/* --- any value ---------------------------------------------------------------------------------*/

static int number_of(shl_fressian *reader, int (*use)(shl_fressian *, int64_t))
{
    int64_t number;
    return integer(reader, code_of(reader), &number) ? use(reader, number) : fail(reader);
}

static int real(shl_fressian *reader)
{
    uint64_t bits = 0;
    double number;
    if (!is_there(reader, 8))
        return 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | *reader->at++;
    memcpy(&number, &bits, sizeof number);
    put_double(reader, number);
    return 1;
}

static int of_code(shl_fressian *reader, int code)
{
    int64_t number;
    if (integer(reader, code, &number)) {
        put_integer(reader, number);
        return 1;
    }
    if (reader->failed)
        return 0;
    if (code >= CACHED_0 && code < STRUCT_0)
        return get_cached(reader, code - CACHED_0);
    if (code >= STRUCT_0 && code < STRUCT_0 + 16)
        return known_struct(reader, code - STRUCT_0);
    if (code >= STRING_0 && code <= STRING)
        return string(reader, code);
    if (code >= LIST_0 && code <= CLOSED_LIST)
        return items(reader, code, "[", "]");
    switch (code) {
    case NIL:
        put_text(reader, "nil");
        return 1;
    case YES:
    case NO:
        put_text(reader, code == YES ? "true" : "false");
        return 1;
    case KEYWORD:
        return named(reader, ":");
    case SYMBOL:
        return named(reader, "");
    case MAP:
        return collection(reader, "{", "}");
    case SET:
        return collection(reader, "#{", "}");
    case DOUBLE:
        return real(reader);
    case DOUBLE_0:
    case DOUBLE_1:
        put_text(reader, code == DOUBLE_0 ? "0.0" : "1.0");
        return 1;
    case PUT_CACHED:
        return put_cached(reader);
    case GET_CACHED:
        return number_of(reader, get_cached);
    case STRUCT_TYPE:
        return new_struct(reader);
    case STRUCT:
        return number_of(reader, known_struct);
    default:
        return fail(reader);
    }
}

static int value(shl_fressian *reader)
{
    if (reader->depth == DEEPEST)
        return fail(reader);
    reader->depth++;
    int fine = of_code(reader, code_of(reader));
    reader->depth--;
    return fine && !reader->failed;
}

const char *shl_fressian_print(shl_fressian *reader, int64_t *length, int64_t *values)
{
    int64_t whole = 0;
    reader->out.used = 0;
    for (*values = 0; reader->at < reader->end && !reader->failed && whole < ENOUGH; ++*values) {
        if (!value(reader))
            break;
        put(reader, "\n", 1);
        if (reader->failed)
            break;
        whole = reader->out.used;
    }
    *length = whole;
    if (reader->no_memory)
        return NULL;
    return whole ? reader->out.bytes : "";
}
