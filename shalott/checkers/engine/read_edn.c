/* EDN (https://github.com/edn-format/edn) as Jepsen writes histories: one map an entry, on a
 * line of its own or not, or all of them in one vector.
 *
 * Only the map of an entry is understood; its values are stepped over, brackets matched, and
 * kept as text. An entry is taken in once its closing brace was seen, so bytes that end early
 * cost nothing: the parser goes back to where the entry began and says SHL_MORE. */
#define _GNU_SOURCE /* memmem */
#include "internal_edn.h"

#include <string.h>

/* --- values ------------------------------------------------------------------------------------*/

int shl_edn_integer(shl_slice token, int64_t *number)
{
    const char *at = token.at, *end = at + token.length;
    int negative = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    if (end - at > 1 && end[-1] == 'N')
        end--;
    if (at == end)
        return 0;
    uint64_t sum = 0, limit = (uint64_t)INT64_MAX + (uint64_t)negative;
    const char *safe = end - at > 18 ? at + 18 : end; /* so many digits always fit */
    for (; at < safe; at++) {
        uint64_t digit = (uint8_t)(*at - '0');
        if (digit > 9)
            return 0;
        sum = sum * 10 + digit;
    }
    for (; at < end; at++) {
        uint64_t digit = (uint8_t)(*at - '0');
        if (digit > 9 || sum > (limit - digit) / 10)
            return 0;
        sum = sum * 10 + digit;
    }
    *number = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return 1;
}

/* An integer of at most 18 digits and nothing else; 0: it is something else. */
static inline int read_short_integer(shl_cursor *cursor, shl_value *value)
{
    const char *at = cursor->at, *end = cursor->end - at > 18 ? at + 18 : cursor->end;
    int64_t sum = 0;
    for (; at < end && is_digit(*at); at++)
        sum = sum * 10 + (*at - '0');
    if (at == cursor->end || class_of(*at) == TOKEN)
        return 0;
    value->kind = SHL_INTEGER;
    value->number = sum;
    value->slice = (shl_slice){cursor->at, at - cursor->at};
    cursor->at = at;
    return 1;
}

/* A value as the columns keep it: nothing, an integer, or its text. */
static inline int read_value(shl_cursor *cursor, shl_value *value)
{
    if (cursor->at == cursor->end)
        return SHL_MORE;
    const char *from = cursor->at;
    char first = *from;
    if (is_digit(first) && read_short_integer(cursor, value))
        return SHL_READ_FINE;
    value->kind = SHL_FORM;
    value->number = 0;
    if (class_of(first) == TOKEN && first != '#' && first != '\\') {
        shl_slice token = read_token(cursor);
        value->slice = token;
        if (is_digit(first) || first == '-' || first == '+')
            value->kind = shl_edn_integer(token, &value->number) ? SHL_INTEGER : SHL_FORM;
        else if (SHL_IS(token, "nil"))
            value->kind = SHL_NOTHING;
        return SHL_READ_FINE;
    }
    int status = first == '[' && skip_flat_vector(cursor) ? SHL_READ_FINE : skip_form(cursor);
    value->slice = (shl_slice){from, cursor->at - from};
    return status;
}

int shl_edn_value(shl_cursor *cursor, shl_value *value)
{
    return read_value(cursor, value);
}

int shl_edn_blank(shl_cursor *cursor)
{
    return skip_blank(cursor);
}

shl_slice shl_edn_token(shl_cursor *cursor)
{
    return read_token(cursor);
}

int shl_has_operation(shl_slice text)
{
    return has_operation(text);
}

uint8_t shl_entry_type(shl_slice word)
{
    if (SHL_IS(word, "invoke"))
        return SHL_INVOKE;
    if (SHL_IS(word, "ok"))
        return SHL_OK;
    if (SHL_IS(word, "fail"))
        return SHL_FAIL;
    return SHL_IS(word, "info") ? SHL_INFO : SHL_NO_TYPE;
}

/* --- entries -----------------------------------------------------------------------------------*/

/* The fields of an entry, as they stand in the file, and where each stands. A field that is missing
 * has a slice of length 0. */
typedef struct {
    shl_value process, client, type, f, key, value, time, index, error;
} fields;

static shl_value *field_of(fields *found, shl_slice name)
{
    switch (name.length) {
    case 2:
        return SHL_IS(name, ":f") ? &found->f : NULL;
    case 4:
        return SHL_IS(name, ":key") ? &found->key : NULL;
    case 5:
        return SHL_IS(name, ":type") ? &found->type : SHL_IS(name, ":time") ? &found->time : NULL;
    case 6:
        return SHL_IS(name, ":value")   ? &found->value
               : SHL_IS(name, ":error") ? &found->error
               : SHL_IS(name, ":index") ? &found->index
                                        : NULL;
    case 7:
        return SHL_IS(name, ":client") ? &found->client : NULL;
    case 8:
        return SHL_IS(name, ":process") ? &found->process : NULL;
    default:
        return NULL;
    }
}

/* A keyword's or a string's text; nothing of anything else. */
static shl_slice word_of(const shl_value *value)
{
    shl_slice slice = value->slice;
    if (value->kind == SHL_FORM && slice.length > 1 && *slice.at == ':')
        return (shl_slice){slice.at + 1, slice.length - 1};
    if (value->kind == SHL_FORM && slice.length > 2 && *slice.at == '"')
        return (shl_slice){slice.at + 1, slice.length - 2};
    return (shl_slice){slice.at, 0};
}

static int read_fields(shl_cursor *cursor, fields *found)
{
    cursor->at++; /* the brace */
    for (;;) {
        int status = blank(cursor);
        if (status)
            return status;
        if (cursor->at == cursor->end)
            return SHL_MORE;
        if (*cursor->at == '}') {
            cursor->at++;
            return SHL_READ_FINE;
        }
        shl_value name, unknown, *field;
        if (*cursor->at == '#' && cursor->at + 1 == cursor->end)
            return SHL_MORE; /* the bytes end within the mark of a discarded form */
        if (*cursor->at != ':') /* the next entry's brace, mostly */
            return SHL_READ_UNCLOSED;
        if ((status = read_value(cursor, &name)) || (status = blank(cursor)))
            return status;
        if (cursor->at == cursor->end)
            return SHL_MORE;
        if (*cursor->at == '}')
            return SHL_READ_ODD_MAP;
        field = field_of(found, name.slice);
        if ((status = read_value(cursor, field ? field : &unknown)))
            return status;
    }
}

/* [key value] into its two. */
static int split_tuple(shl_slice tuple, shl_entry *entry)
{
    shl_cursor cursor = {tuple.at, tuple.at + tuple.length, 0};
    shl_value key;
    while (cursor.at < cursor.end && *cursor.at == '#') { /* its tag */
        shl_edn_token(&cursor);
        if (shl_edn_blank(&cursor))
            return 0;
    }
    if (cursor.at == cursor.end || *cursor.at != '[')
        return 0;
    cursor.at++;
    if (shl_edn_blank(&cursor) || cursor.at == cursor.end || *cursor.at == ']' ||
        shl_edn_value(&cursor, &key) || shl_edn_blank(&cursor) || cursor.at == cursor.end ||
        *cursor.at == ']' || shl_edn_value(&cursor, &entry->value) || shl_edn_blank(&cursor))
        return 0;
    entry->key = key.slice;
    entry->has_key = 1;
    return cursor.at < cursor.end && *cursor.at == ']';
}

static int complain_of(shl_reader *reader, int code, int64_t line, const shl_value *field,
                       const char *begin)
{
    shl_complain_of(reader, field->slice);
    return shl_complain(reader, code, line, field->slice.length ? field->slice.at : begin);
}

static int key_entry(shl_reader *reader, const fields *found, shl_entry *entry, const char *begin)
{
    if (found->key.slice.length) {
        entry->has_key = 1;
        entry->key = found->key.slice;
    }
    if (!reader->keyed)
        return SHL_READ_FINE;
    /* A completion may have lost its value: what crashed or failed need not say its key again. */
    if (entry->type != SHL_INVOKE && found->value.kind == SHL_NOTHING)
        return SHL_READ_FINE;
    if (found->value.kind == SHL_FORM && split_tuple(found->value.slice, entry))
        return SHL_READ_FINE;
    entry->value = found->value;
    if (entry->type == SHL_FAIL || entry->type == SHL_INFO) {
        entry->has_key = 0;
        return SHL_READ_FINE;
    }
    return complain_of(reader, SHL_READ_NOT_KEYED, entry->line, &found->value, begin);
}

static int take_fields(shl_reader *reader, const fields *found, int64_t line, const char *begin)
{
    shl_entry entry = {.line = line, .value = found->value};
    shl_slice error = word_of(&found->error);
    entry.has_time = found->time.kind == SHL_INTEGER;
    entry.time = found->time.number;
    entry.has_index = found->index.kind == SHL_INTEGER;
    entry.index = found->index.number;
    shl_note_order(reader, &entry);
    if (!found->process.slice.length)
        return shl_complain(reader, SHL_READ_NO_PROCESS, line, begin);
    if (found->process.kind != SHL_INTEGER) {
        if (!SHL_IS(word_of(&found->process), "nemesis"))
            return complain_of(reader, SHL_READ_BAD_PROCESS, line, &found->process, begin);
        shl_take_nemesis(reader, line);
        return SHL_READ_FINE;
    }
    entry.id = entry.process = found->process.number;
    if (entry.process > INT32_MAX || entry.process < INT32_MIN)
        return complain_of(reader, SHL_READ_BAD_PROCESS, line, &found->process, begin);
    if (found->client.slice.length) { /* who goes on as another process (edn_export.py) */
        entry.process = found->client.number;
        if (found->client.kind != SHL_INTEGER || entry.process > INT32_MAX || entry.process < 0)
            return complain_of(reader, SHL_READ_BAD_PROCESS, line, &found->client, begin);
    }
    if (!found->type.slice.length)
        return shl_complain(reader, SHL_READ_NO_TYPE, line, begin);
    entry.type = shl_entry_type(word_of(&found->type));
    if (entry.type == SHL_NO_TYPE)
        return complain_of(reader, SHL_READ_BAD_TYPE, line, &found->type, begin);
    entry.f = word_of(&found->f);
    if (!found->f.slice.length)
        return shl_complain(reader, SHL_READ_NO_F, line, begin);
    if (!entry.f.length)
        return complain_of(reader, SHL_READ_BAD_F, line, &found->f, begin);
    if (found->time.slice.length && found->time.kind == SHL_FORM)
        return complain_of(reader, SHL_READ_BAD_TIME, line, &found->time, begin);
    if (reader->by_index) {
        entry.has_time = entry.has_index;
        entry.time = entry.index;
    }
    entry.error = found->error.kind == SHL_NOTHING ? error : found->error.slice;
    entry.empty = (uint8_t)shl_says_empty(error);
    if (entry.type == SHL_FAIL)
        entry.empty |= (uint8_t)shl_says_empty(word_of(&found->value));
    int wrong = key_entry(reader, found, &entry, begin);
    return wrong ? wrong : shl_take_entry(reader, &entry, begin);
}

/* Whether two operations stand in it, by the name of a field that each has once: only one of them
 * can be meant. */
static int has_two(shl_slice text, const char *mark)
{
    const char *first = find(text, mark);
    if (!first)
        return 0;
    first += strlen(mark);
    return find((shl_slice){first, text.at + text.length - first}, mark) != NULL;
}

int shl_spans_two(shl_reader *reader, const char *begin, int64_t line, const shl_cursor *cursor,
                  const char *mark)
{
    if (cursor->line == line)
        return 0;
    if (has_two((shl_slice){begin, cursor->at - begin}, mark))
        return 1;
    if (cursor->line - line >= reader->most_lines)
        reader->most_lines = cursor->line - line + 1;
    return 0;
}

static int read_entry(shl_reader *reader, shl_cursor *cursor)
{
    const char *begin = cursor->at;
    int64_t line = cursor->line;
    fields found;
    memset(&found, 0, sizeof found);
    int status = skip_tags(cursor);
    if (!status && *cursor->at != '{')
        status = SHL_READ_NO_MAP;
    if (!status)
        status = read_fields(cursor, &found);
    if (!status && shl_spans_two(reader, begin, line, cursor, SHL_EDN_MARK))
        status = SHL_READ_UNCLOSED;
    if (status == SHL_READ_UNCLOSED)
        reader->state.error_other = line;
    if (status)
        return status;
    return take_fields(reader, &found, line, begin);
}

/* What is left of a file whose end is missing is the beginning of one entry: no longer than those
 * before it, in lines, and of one process. Otherwise a bracket or a quote is missing, which would
 * swallow all that follows. */
int shl_check_torn(shl_reader *reader, const shl_cursor *tail, const char *mark)
{
    const char *end = tail->end;
    int64_t lines = 1;
    while (end > tail->at && class_of(end[-1]) == SPACE)
        end--;
    shl_slice text = {tail->at, end - tail->at};
    for (const char *at = text.at; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++)
        lines++;
    if (lines <= reader->most_lines && !has_two(text, mark))
        return SHL_READ_FINE;
    reader->state.error_other = tail->line;
    return shl_complain(reader, SHL_READ_UNCLOSED, tail->line, tail->at);
}

int shl_read_edn(shl_reader *reader, shl_cursor *cursor, int32_t last)
{
    for (int found;;) {
        int status = find_entry(reader, cursor, last, &found);
        if (status || !found)
            return status;
        shl_cursor entry = *cursor;
        status = read_entry(reader, &entry);
        if (status > 0 && !reader->state.error)
            return shl_complain(reader, status, entry.line, entry.at);
        if (status)
            return status;
        *cursor = entry;
    }
}
