/* Entries out of JSON (RFC 8259): objects in one array, or one behind the other, with the same
 * fields as EDN's maps. */
#include "internal_entries.h"

#include <string.h>

enum { DEEPEST = 128 };

/* Where the reader stands between entries. */
enum {
    AT_BEGIN = 0,
    IN_LINES = 1,
    BEHIND_OPENER = 2,
    BEHIND_ENTRY = 3,
    BEHIND_COMMA = 4,
    AT_END = 5,
};

static inline void skip_space(shl_cursor *cursor)
{
    const char *at = cursor->at;
    while (at < cursor->end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        cursor->line += *at++ == '\n';
    cursor->at = at;
}

/* Space, then one more byte to look at. */
static inline int next_byte(shl_cursor *cursor)
{
    skip_space(cursor);
    return cursor->at == cursor->end ? SHL_MORE : SHL_READ_FINE;
}

/* --- scalars -----------------------------------------------------------------------------------*/

/* One escape behind its backslash; how many bytes of the text it takes, 0: it is none. */
static int64_t resolve(const char *at, const char *end, char **to)
{
    static const char NAMES[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
    const char *name = at < end ? memchr(NAMES, *at, sizeof NAMES - 1) : NULL;
    if (name) {
        *(*to)++ = MEANT[name - NAMES];
        return 1;
    }
    return at < end && *at == 'u' ? shl_put_unit(at, end, to) : 0;
}

static int read_string(shl_entries *entries, shl_cursor *cursor)
{
    const char *from = cursor->at + 1, *at = from;
    int escaped = 0;
    for (; at < cursor->end && *at != '"'; at++) {
        if ((uint8_t)*at < 0x20) {
            cursor->at = at;
            return SHL_READ_UNEXPECTED;
        }
        if (*at == '\\') {
            escaped = 1;
            if (++at == cursor->end)
                break;
        }
    }
    if (at >= cursor->end)
        return SHL_MORE;
    cursor->at = at + 1;
    shl_slice text = {from, at - from};
    return escaped ? shl_add_escaped(entries, cursor, text, resolve)
                   : shl_add_text(entries, SHL_NODE_TEXT, text);
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
int shl_is_json_number(shl_slice token)
{
    const char *at = token.at, *end = at + token.length, *after;
    at += at < end && *at == '-';
    after = digits(at, end);
    if (after == at || (*at == '0' && after > at + 1))
        return 0;
    if (after < end && *after == '.') {
        at = after + 1;
        if ((after = digits(at, end)) == at)
            return 0;
    }
    if (after < end && (*after == 'e' || *after == 'E')) {
        at = after + 1;
        at += at < end && (*at == '-' || *at == '+');
        if ((after = digits(at, end)) == at)
            return 0;
    }
    return after == end;
}

static int is_plain(char byte)
{
    return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           byte == '-' || byte == '+' || byte == '.' || byte == '_';
}

static int read_plain(shl_entries *entries, shl_cursor *cursor)
{
    const char *from = cursor->at, *at = from;
    while (at < cursor->end && is_plain(*at))
        at++;
    if (at == cursor->end)
        return SHL_MORE; /* it may go on */
    if (at == from)
        return SHL_READ_UNEXPECTED;
    shl_slice token = {from, at - from};
    cursor->at = at;
    int64_t number = 0;
    int kind = SHL_IS(token, "null")    ? SHL_NODE_NIL
               : SHL_IS(token, "true")  ? SHL_NODE_TRUE
               : SHL_IS(token, "false") ? SHL_NODE_FALSE
                                        : SHL_NODE_OTHER;
    if (kind == SHL_NODE_OTHER) {
        if (!shl_is_json_number(token))
            return shl_no_value(entries, token, cursor);
        if (!shl_edn_integer(token, &number))
            return shl_add_text(entries, SHL_NODE_OTHER, token);
        kind = SHL_NODE_INTEGER;
    }
    return shl_add_node(entries, (uint8_t)kind, number) < 0 ? SHL_READ_STOPPED : SHL_READ_FINE;
}

/* --- values ------------------------------------------------------------------------------------*/

static int read_value(shl_entries *entries, shl_cursor *cursor, int depth);

static int expect(shl_cursor *cursor, char byte)
{
    int status = next_byte(cursor);
    if (status)
        return status;
    if (*cursor->at != byte)
        return SHL_READ_UNEXPECTED;
    cursor->at++;
    return SHL_READ_FINE;
}

/* A name and its colon, the cursor before the name. */
static int read_name(shl_entries *entries, shl_cursor *cursor)
{
    if (*cursor->at != '"')
        return SHL_READ_UNEXPECTED;
    int status = read_string(entries, cursor);
    return status ? status : expect(cursor, ':');
}

/* What comes behind a member: a comma and another one, or the closer. */
static int read_separator(shl_cursor *cursor, char closer, int *is_closed)
{
    int status = next_byte(cursor);
    if (status)
        return status;
    char byte = *cursor->at;
    if (byte != ',' && byte != closer)
        return byte == ']' || byte == '}' ? SHL_READ_MISMATCHED : SHL_READ_UNEXPECTED;
    cursor->at++;
    *is_closed = byte == closer;
    return SHL_READ_FINE;
}

static int read_nested(shl_entries *entries, shl_cursor *cursor, int depth)
{
    int is_map = *cursor->at == '{', is_closed = 0, status;
    char closer = is_map ? '}' : ']';
    int64_t children = 0;
    if (depth == DEEPEST)
        return SHL_READ_TOO_DEEP;
    int32_t node = shl_add_node(entries, is_map ? SHL_NODE_MAP : SHL_NODE_LIST, 0);
    if (node < 0)
        return SHL_READ_STOPPED;
    cursor->at++;
    if ((status = next_byte(cursor)))
        return status;
    if (*cursor->at == closer) {
        cursor->at++;
        is_closed = 1;
    }
    while (!is_closed) {
        if ((status = next_byte(cursor)) ||
            (is_map && (status = read_name(entries, cursor))) ||
            (status = next_byte(cursor)) || (status = read_value(entries, cursor, depth + 1)) ||
            (status = read_separator(cursor, closer, &is_closed)))
            return status;
        children += 1 + is_map;
    }
    entries->nodes[node].next = (int32_t)entries->node_count;
    entries->nodes[node].number = children;
    return SHL_READ_FINE;
}

static int read_value(shl_entries *entries, shl_cursor *cursor, int depth)
{
    if (*cursor->at == '"')
        return read_string(entries, cursor);
    if (*cursor->at == '[' || *cursor->at == '{')
        return read_nested(entries, cursor, depth);
    return read_plain(entries, cursor);
}

/* --- entries -----------------------------------------------------------------------------------*/

static int read_field(shl_entries *entries, shl_cursor *cursor, shl_fields *fields)
{
    const char *name = cursor->at;
    int32_t node = (int32_t)entries->node_count;
    entries->is_aside = 0;
    int status = read_name(entries, cursor);
    if (status == SHL_READ_UNEXPECTED && *name == '{')
        return SHL_READ_UNCLOSED;
    if (status || (status = next_byte(cursor)))
        return status;
    int field = shl_field_of(entries->nodes[node].number);
    if (field < FIELDS && fields->node[field] >= 0) {
        shl_complain_of(&entries->reader, (shl_slice){name, cursor->at - name});
        return shl_complain(&entries->reader, SHL_READ_FIELD_TWICE, cursor->line, name);
    }
    entries->is_aside = field >= FIELD_ERROR;
    const char *from = cursor->at;
    node = (int32_t)entries->node_count;
    if ((status = read_value(entries, cursor, 1)) || field == FIELDS)
        return status;
    fields->node[field] = node;
    fields->slice[field] = (shl_slice){from, cursor->at - from};
    return SHL_READ_FINE;
}

static int read_object(shl_entries *entries, shl_cursor *cursor, shl_fields *fields)
{
    int is_closed = 0, status;
    int64_t children = 0;
    if (*cursor->at != '{')
        return SHL_READ_NO_MAP;
    fields->root = shl_add_node(entries, SHL_NODE_MAP, 0);
    if (fields->root < 0)
        return SHL_READ_STOPPED;
    cursor->at++;
    while (!is_closed) {
        if ((status = next_byte(cursor)) || (status = read_field(entries, cursor, fields)) ||
            (status = read_separator(cursor, '}', &is_closed)))
            return status;
        children += 2;
    }
    entries->nodes[fields->root].next = (int32_t)entries->node_count;
    entries->nodes[fields->root].number = children;
    return SHL_READ_FINE;
}

static int read_entry(shl_entries *entries, shl_cursor *cursor)
{
    shl_reader *reader = &entries->reader;
    shl_fields fields;
    shl_fields_clear(&fields);
    fields.begin = cursor->at;
    fields.line = cursor->line;
    int status = read_object(entries, cursor, &fields);
    if (!status && shl_spans_two(reader, fields.begin, fields.line, cursor, SHL_JSON_MARK))
        status = SHL_READ_UNCLOSED;
    if (status == SHL_READ_UNCLOSED)
        reader->state.error_other = fields.line;
    if (!status)
        status = shl_take_fields(entries, &fields);
    if (!status)
        entries->place = entries->place > IN_LINES ? BEHIND_ENTRY : IN_LINES;
    return status;
}

/* Moves to the next entry, over what stands between two. *found: there is one. */
static int find_entry(shl_entries *entries, shl_cursor *cursor, int32_t last, int *found)
{
    for (*found = 0;;) {
        int place = entries->place;
        if (next_byte(cursor))
            return last && place > IN_LINES && place < AT_END ? SHL_MORE : SHL_READ_FINE;
        char byte = *cursor->at;
        if (place == AT_BEGIN && byte == '[') {
            entries->place = BEHIND_OPENER;
        } else if (byte == ']' && (place == BEHIND_OPENER || place == BEHIND_ENTRY)) {
            entries->place = AT_END;
        } else if (byte == ',' && place == BEHIND_ENTRY) {
            entries->place = BEHIND_COMMA;
        } else {
            *found = place != BEHIND_ENTRY && place != AT_END;
            return *found ? SHL_READ_FINE
                          : shl_complain(&entries->reader, SHL_READ_UNEXPECTED, cursor->line,
                                         cursor->at);
        }
        cursor->at++;
    }
}

int shl_entries_json(shl_entries *entries, shl_cursor *cursor, int32_t last)
{
    return shl_read_whole(entries, cursor, last, find_entry, read_entry);
}
