/* Our own recording (core/recording.py): a JSON object a line. An invocation says
 * everything and has an index of its own; its completion says that index, and what became of it. */
#include "internal_read.h"

#include <string.h>

enum { DEEPEST = 128 };

/* The row of an invocation that is the nemesis's: it has none. */
static const int64_t NEMESIS_ROW = INT64_MIN;

/* Its process, and no other below 0. */
enum { NEMESIS = -1 };

static void skip_space(shl_cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

/* The text between the quotes, its escapes left as they are. */
static int read_string(shl_cursor *cursor, shl_slice *text)
{
    const char *from = cursor->at + 1, *at = from;
    for (; at < cursor->end; at++) {
        if (*at == '"') {
            *text = (shl_slice){from, at - from};
            cursor->at = at + 1;
            return SHL_READ_FINE;
        }
        at += *at == '\\';
    }
    cursor->at = cursor->end;
    return SHL_MORE;
}

static int is_plain(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || byte == '-' ||
           byte == '+' || byte == '.' || byte == 'E' || byte == 'N' || byte == 'I';
}

static shl_slice read_plain(shl_cursor *cursor)
{
    const char *from = cursor->at;
    while (cursor->at < cursor->end && is_plain(*cursor->at))
        cursor->at++;
    return (shl_slice){from, cursor->at - from};
}

/* A number, or one of JSON's words; Python decodes it and knows more. */
static int is_scalar(shl_slice text)
{
    if (!text.length)
        return 0;
    if (*text.at == '-' || (*text.at >= '0' && *text.at <= '9'))
        return 1;
    return SHL_IS(text, "null") || SHL_IS(text, "true") || SHL_IS(text, "false") ||
           SHL_IS(text, "NaN") || SHL_IS(text, "Infinity");
}

/* Steps over an array or an object; its commas and colons are not looked at. */
static int skip_nested(shl_cursor *cursor)
{
    char closers[DEEPEST];
    int depth = 0;
    shl_slice text;
    do {
        skip_space(cursor);
        if (cursor->at == cursor->end)
            return SHL_MORE;
        char byte = *cursor->at;
        if (byte == '"') {
            int status = read_string(cursor, &text);
            if (status)
                return status;
        } else if (byte == '[' || byte == '{') {
            if (depth == DEEPEST)
                return SHL_READ_TOO_DEEP;
            closers[depth++] = byte == '[' ? ']' : '}';
            cursor->at++;
        } else if (byte == ']' || byte == '}') {
            if (closers[depth - 1] != byte)
                return SHL_READ_MISMATCHED;
            depth--;
            cursor->at++;
        } else if (byte == ',' || byte == ':') {
            cursor->at++;
        } else if (!read_plain(cursor).length) {
            return SHL_READ_UNEXPECTED;
        }
    } while (depth);
    return SHL_READ_FINE;
}

/* A value: nothing (null), an integer, or another form. Strings come without their quotes. */
static int read_value(shl_cursor *cursor, shl_value *value)
{
    skip_space(cursor);
    if (cursor->at == cursor->end)
        return SHL_MORE;
    const char *from = cursor->at;
    int status = SHL_READ_FINE;
    value->kind = SHL_FORM;
    value->number = 0;
    if (*from == '"')
        return read_string(cursor, &value->slice);
    if (*from == '[' || *from == '{') {
        status = skip_nested(cursor);
        value->slice = (shl_slice){from, cursor->at - from};
        return status;
    }
    value->slice = read_plain(cursor);
    if (!is_scalar(value->slice)) {
        cursor->at = from;
        return SHL_READ_UNEXPECTED;
    }
    if (SHL_IS(value->slice, "null"))
        value->kind = SHL_NOTHING;
    else if (shl_edn_integer(value->slice, &value->number))
        value->kind = SHL_INTEGER;
    return SHL_READ_FINE;
}

typedef struct {
    shl_value index, type, at_ns, process, f, key, value, error, offset;
} fields;

static shl_value *field_of(fields *found, shl_slice name)
{
    if (SHL_IS(name, "index"))
        return &found->index;
    if (SHL_IS(name, "type"))
        return &found->type;
    if (SHL_IS(name, "at_ns"))
        return &found->at_ns;
    if (SHL_IS(name, "process"))
        return &found->process;
    if (SHL_IS(name, "f"))
        return &found->f;
    if (SHL_IS(name, "key"))
        return &found->key;
    if (SHL_IS(name, "value"))
        return &found->value;
    if (SHL_IS(name, "offset"))
        return &found->offset;
    return SHL_IS(name, "error") ? &found->error : NULL;
}

static int expect(shl_cursor *cursor, char byte)
{
    skip_space(cursor);
    if (cursor->at == cursor->end)
        return SHL_MORE;
    if (*cursor->at != byte)
        return SHL_READ_UNEXPECTED;
    cursor->at++;
    return SHL_READ_FINE;
}

static int read_fields(shl_cursor *cursor, fields *found)
{
    int status = expect(cursor, '{');
    skip_space(cursor);
    if (!status && cursor->at < cursor->end && *cursor->at == '}') {
        cursor->at++;
        return SHL_READ_FINE;
    }
    while (!status) {
        shl_slice name;
        shl_value unknown;
        status = expect(cursor, '"');
        if (status)
            return status;
        cursor->at--;
        if ((status = read_string(cursor, &name)) || (status = expect(cursor, ':')))
            return status;
        shl_value *field = field_of(found, name);
        if ((status = read_value(cursor, field ? field : &unknown)))
            return status;
        skip_space(cursor);
        if (cursor->at < cursor->end && *cursor->at == '}') {
            cursor->at++;
            return SHL_READ_FINE;
        }
        status = expect(cursor, ',');
    }
    return status;
}

static int complain(shl_reader *reader, int code, int64_t line, const shl_value *field,
                    const char *begin)
{
    if (field->slice.length) {
        shl_complain_of(reader, field->slice);
        begin = field->slice.at;
    }
    return shl_complain(reader, code, line, begin);
}

/* Of the nemesis nothing is kept but that it is the nemesis's. Says whether the entry is. */
static int is_nemesis(shl_reader *reader, const fields *found, int invocation, int64_t line,
                      int *status)
{
    int64_t *place = shl_row_of(&reader->open, found->index.number, reader->budget);
    *status = SHL_READ_FINE;
    if (!place) {
        *status = SHL_READ_STOPPED;
        return 1;
    }
    if (invocation && found->process.kind == SHL_INTEGER && found->process.number == NEMESIS &&
        !*place) {
        *place = NEMESIS_ROW;
        if (shl_name(&reader->faults, found->f.slice, line, reader->budget) < 0)
            *status = SHL_READ_STOPPED;
    }
    if (*place != NEMESIS_ROW)
        return 0;
    shl_take_nemesis(reader, line);
    return 1;
}

/* One damaged byte makes -1 of process 11, and its operation would vanish without a word. */
int shl_check_faults(shl_reader *reader)
{
    const shl_names *faults = &reader->faults, *words = &reader->names[SHL_READ_WORDS];
    for (int32_t fault = 0; fault < faults->count; fault++) {
        shl_slice f = shl_named(faults, fault);
        for (int32_t word = 0; f.length && word < words->count; word++) {
            shl_slice known = shl_named(words, word);
            if (!shl_is(f, known.at, known.length))
                continue;
            shl_complain_of(reader, f);
            reader->state.error = SHL_READ_NEMESIS_F;
            reader->state.error_line = faults->lines[fault];
            reader->state.error_column = 1;
            return SHL_READ_NEMESIS_F;
        }
    }
    return SHL_READ_FINE;
}

static int take_invocation(shl_reader *reader, const fields *found, shl_entry *entry,
                           const char *begin)
{
    if (found->process.kind != SHL_INTEGER || found->process.number > INT32_MAX ||
        found->process.number < 0)
        return complain(reader,
                        found->process.kind == SHL_NOTHING ? SHL_READ_NO_PROCESS
                                                           : SHL_READ_BAD_PROCESS,
                        entry->line, &found->process, begin);
    if (found->f.kind != SHL_FORM || !found->f.slice.length)
        return complain(reader, SHL_READ_NO_F, entry->line, &found->f, begin);
    entry->process = found->process.number;
    entry->f = found->f.slice;
    if (found->key.kind == SHL_FORM && found->key.slice.length) {
        entry->has_key = 1;
        entry->key = found->key.slice;
    }
    return shl_take_entry(reader, entry, begin);
}

static int take_fields(shl_reader *reader, const fields *found, int64_t line, const char *begin)
{
    shl_slice type = found->type.slice;
    int status;
    if (found->type.kind != SHL_FORM)
        return complain(reader, SHL_READ_NO_TYPE, line, &found->type, begin);
    if (SHL_IS(type, "begin")) {
        reader->state.begun = 1;
        return SHL_READ_FINE;
    }
    if (SHL_IS(type, "end")) {
        reader->state.ended = 1;
        return SHL_READ_FINE;
    }
    if (SHL_IS(type, "check")) /* the sum of the lines before it (core/recording.py) */
        return SHL_READ_FINE;
    shl_entry entry = {.line = line, .id = found->index.number, .once = 1, .repeats = 1};
    entry.type = shl_entry_type(type);
    if (entry.type == SHL_NO_TYPE)
        return complain(reader, SHL_READ_BAD_TYPE, line, &found->type, begin);
    if (found->index.kind != SHL_INTEGER)
        return complain(reader, SHL_READ_NO_INDEX, line, &found->index, begin);
    if (found->at_ns.kind != SHL_INTEGER)
        return complain(reader, SHL_READ_BAD_TIME, line, &found->at_ns, begin);
    entry.has_time = 1;
    entry.time = found->at_ns.number;
    entry.value = found->value;
    if (entry.value.kind == SHL_FORM && entry.value.slice.at[-1] == '"') { /* with its quotes */
        entry.value.slice.at--;
        entry.value.slice.length += 2;
    }
    if (found->offset.kind == SHL_INTEGER) {
        entry.has_offset = 1;
        entry.offset = found->offset.number;
    }
    if (found->error.kind == SHL_FORM)
        entry.error = found->error.slice;
    entry.empty = (uint8_t)shl_says_empty(entry.error);
    if (is_nemesis(reader, found, entry.type == SHL_INVOKE, line, &status))
        return status ? shl_complain(reader, status, line, begin) : SHL_READ_FINE;
    return entry.type == SHL_INVOKE ? take_invocation(reader, found, &entry, begin)
                                    : shl_take_entry(reader, &entry, begin);
}

int shl_read_recording_line(shl_reader *reader, shl_cursor *line)
{
    const char *begin = line->at;
    fields found;
    memset(&found, 0, sizeof found);
    skip_space(line);
    if (line->at == line->end)
        return SHL_READ_FINE;
    int status = read_fields(line, &found);
    skip_space(line);
    if (!status && line->at < line->end)
        status = SHL_READ_UNEXPECTED;
    if (status == SHL_MORE)
        return SHL_MORE;
    if (status)
        return shl_complain(reader, status, line->line, line->at);
    return take_fields(reader, &found, line->line, begin);
}
