/* Entries out of EDN: see read_edn.c for what an entry is, and for a file that ends early. */
#define _GNU_SOURCE /* memmem */
#include "internal_entries.h"
#include "internal_edn.h"

#include <string.h>

/* Mostly there is one space or none. */
static inline int step_over_blank(shl_cursor *cursor)
{
    const char *at = cursor->at;
    while (at < cursor->end && class_of(*at) == SPACE)
        cursor->line += *at++ == '\n';
    cursor->at = at;
    return at < cursor->end && (*at == ';' || *at == '#') ? skip_blank(cursor) : SHL_READ_FINE;
}

/* --- scalars -----------------------------------------------------------------------------------*/

/* What begins like a number must be one: 12, 12N, 1.5, 1e3, 1.5M, 1/3. */
static int is_number(shl_slice token)
{
    const char *at = token.at, *end = at + token.length;
    at += *at == '-' || *at == '+';
    const char *after = digits(at, end);
    if (after == at)
        return 0;
    if (after < end && *after == '/') {
        at = after + 1;
        return at < end && *at != '0' && digits(at, end) == end;
    }
    if (after < end && *after == 'N')
        return after + 1 == end;
    if (after < end && *after == '.')
        after = digits(after + 1, end);
    if (after < end && (*after == 'e' || *after == 'E')) {
        after++;
        after += after < end && (*after == '-' || *after == '+');
        at = after;
        after = digits(at, end);
        if (after == at)
            return 0;
    }
    after += after < end && *after == 'M';
    return after == end;
}

static int read_number(shl_entries *entries, shl_cursor *cursor, shl_slice token)
{
    int64_t number;
    if (shl_edn_integer(token, &number))
        return shl_add_node(entries, SHL_NODE_INTEGER, number) < 0 ? SHL_READ_STOPPED
                                                                   : SHL_READ_FINE;
    return is_number(token) ? shl_add_text(entries, SHL_NODE_OTHER, token)
                            : shl_no_value(entries, token, cursor);
}

/* A keyword, a number, nil, true, false or a symbol. */
static int read_word(shl_entries *entries, shl_cursor *cursor)
{
    shl_slice token = read_token(cursor);
    char first = *token.at;
    if (cursor->at == cursor->end)
        return SHL_MORE; /* it may go on */
    if (first == ':') {
        if (token.length == 1 || (token.length == 2 && token.at[1] == ':'))
            return shl_no_value(entries, token, cursor);
        return shl_add_text(entries, SHL_NODE_KEYWORD,
                            (shl_slice){token.at + 1, token.length - 1});
    }
    if (is_digit(first) || (token.length > 1 && (first == '-' || first == '+') &&
                            is_digit(token.at[1])))
        return read_number(entries, cursor, token);
    int kind = SHL_IS(token, "nil")     ? SHL_NODE_NIL
               : SHL_IS(token, "true")  ? SHL_NODE_TRUE
               : SHL_IS(token, "false") ? SHL_NODE_FALSE
                                        : SHL_NODE_OTHER;
    if (kind == SHL_NODE_OTHER)
        return shl_add_text(entries, SHL_NODE_OTHER, token);
    return shl_add_node(entries, (uint8_t)kind, 0) < 0 ? SHL_READ_STOPPED : SHL_READ_FINE;
}

/* One escape at `at`, behind its backslash; how many bytes of the text it takes, 0: it is none. */
static int64_t resolve(const char *at, const char *end, char **to)
{
    static const char NAMES[] = "trnbf\\\"", MEANT[] = "\t\r\n\b\f\\\"";
    const char *name = at < end ? memchr(NAMES, *at, sizeof NAMES - 1) : NULL;
    if (name) {
        *(*to)++ = MEANT[name - NAMES];
        return 1;
    }
    if (at < end && *at >= '0' && *at <= '7') {
        int64_t length = 0;
        uint32_t point = 0;
        for (; length < 3 && at + length < end && at[length] >= '0' && at[length] <= '7'; length++)
            point = point * 8 + (uint32_t)(at[length] - '0');
        *to += shl_put_utf8(*to, point);
        return length;
    }
    return at < end && *at == 'u' ? shl_put_unit(at, end, to) : 0;
}

static int read_string(shl_entries *entries, shl_cursor *cursor)
{
    const char *from = cursor->at + 1;
    int status = skip_string(cursor);
    if (status)
        return status;
    shl_slice text = {from, cursor->at - 1 - from};
    if (text.length && memchr(text.at, '\\', (size_t)text.length))
        return shl_add_escaped(entries, cursor, text, resolve);
    return shl_add_text(entries, SHL_NODE_TEXT, text);
}

/* ##Inf, a regular expression, a character: kept as they are written. */
static int read_odd(shl_entries *entries, shl_cursor *cursor)
{
    nesting none = {.depth = 0, .discards = 0};
    const char *from = cursor->at;
    int whole = 0;
    int status = skip_piece(cursor, &none, &whole);
    if (status)
        return status;
    if (cursor->at == cursor->end && from[0] != '"' && cursor->at[-1] != '"')
        return SHL_MORE;
    return shl_add_text(entries, SHL_NODE_OTHER, (shl_slice){from, cursor->at - from});
}

static int read_scalar(shl_entries *entries, shl_cursor *cursor)
{
    if (*cursor->at == '"')
        return read_string(entries, cursor);
    if (*cursor->at == '\\' || *cursor->at == '#')
        return read_odd(entries, cursor);
    if (class_of(*cursor->at) != TOKEN)
        return SHL_READ_UNEXPECTED;
    return read_word(entries, cursor);
}

/* --- forms -------------------------------------------------------------------------------------*/

typedef struct {
    int32_t node;
    char closer;
    int64_t children;
} bracket;

/* The brackets that are open around what is being read. */
typedef struct {
    bracket brackets[DEEPEST];
    int32_t depth;
    const char *tag; /* of the form that comes next; NULL: none */
    int64_t tagged;  /* the count of nodes before that form */
} tree;

static int open_node(shl_entries *entries, shl_cursor *cursor, tree *open)
{
    char first = *cursor->at;
    int is_set = first == '#';
    uint8_t kind = is_set ? SHL_NODE_SET : first == '{' ? SHL_NODE_MAP : SHL_NODE_LIST;
    if (open->depth == DEEPEST)
        return SHL_READ_TOO_DEEP;
    if (open->depth)
        open->brackets[open->depth - 1].children++;
    int32_t node = shl_add_node(entries, kind, 0);
    if (node < 0)
        return SHL_READ_STOPPED;
    open->brackets[open->depth++] = (bracket){node, is_set ? '}' : closer_of(first), 0};
    open->tag = NULL;
    cursor->at += 1 + is_set;
    return SHL_READ_FINE;
}

static int close_node(shl_entries *entries, shl_cursor *cursor, tree *open)
{
    if (!open->depth || open->tag)
        return SHL_READ_UNEXPECTED;
    const bracket *closed = &open->brackets[open->depth - 1];
    shl_node *node = &entries->nodes[closed->node];
    if (closed->closer != *cursor->at)
        return SHL_READ_MISMATCHED;
    if (node->kind == SHL_NODE_MAP && closed->children % 2)
        return SHL_READ_ODD_MAP;
    node->next = (int32_t)entries->node_count;
    node->number = closed->children;
    open->depth--;
    cursor->at++;
    return SHL_READ_FINE;
}

/* A tag is left out before a bracket; before anything else it makes one text with it. */
static int read_leaf(shl_entries *entries, shl_cursor *cursor, tree *open)
{
    if (open->depth)
        open->brackets[open->depth - 1].children++;
    int status = read_scalar(entries, cursor);
    if (status || !open->tag)
        return status;
    shl_slice text = {open->tag, cursor->at - open->tag};
    entries->node_count = open->tagged;
    open->tag = NULL;
    return shl_add_text(entries, SHL_NODE_OTHER, text);
}

static int read_tag(shl_entries *entries, shl_cursor *cursor, tree *open)
{
    if (!open->tag) {
        open->tag = cursor->at;
        open->tagged = entries->node_count;
    }
    cursor->at++;
    if (!read_token(cursor).length)
        return SHL_READ_UNEXPECTED;
    return SHL_READ_FINE;
}

/* A hash opens a set, is part of a scalar (##Inf, #"..."), or begins a tag. */
static int read_hash(shl_entries *entries, shl_cursor *cursor, tree *open)
{
    if (cursor->at + 1 == cursor->end)
        return SHL_MORE;
    char next = cursor->at[1];
    if (next == '{')
        return open_node(entries, cursor, open);
    if (next == '#' || next == '"')
        return read_leaf(entries, cursor, open);
    return read_tag(entries, cursor, open);
}

/* One form of any kind, with all that is in it. */
static int read_form(shl_entries *entries, shl_cursor *cursor)
{
    tree open;
    open.depth = 0;
    open.tag = NULL;
    do {
        int status = step_over_blank(cursor);
        if (status)
            return status;
        if (cursor->at == cursor->end)
            return SHL_MORE;
        switch (*cursor->at) {
        case '[':
        case '(':
        case '{':
            status = open_node(entries, cursor, &open);
            break;
        case ']':
        case ')':
        case '}':
            status = close_node(entries, cursor, &open);
            break;
        case '#':
            status = read_hash(entries, cursor, &open);
            break;
        default:
            status = read_leaf(entries, cursor, &open);
        }
        if (status)
            return status;
    } while (open.depth || open.tag);
    return SHL_READ_FINE;
}

/* --- entries -----------------------------------------------------------------------------------*/

static int twice(shl_entries *entries, shl_slice name, int64_t line)
{
    shl_complain_of(&entries->reader, name);
    return shl_complain(&entries->reader, SHL_READ_FIELD_TWICE, line, name.at);
}

static int read_pair(shl_entries *entries, shl_cursor *cursor, shl_fields *fields)
{
    if (*cursor->at == '#' && cursor->at + 1 == cursor->end)
        return SHL_MORE; /* the bytes end within the mark of a discarded form */
    if (*cursor->at != ':') /* the next entry's brace, mostly */
        return SHL_READ_UNCLOSED;
    const char *name = cursor->at;
    entries->is_aside = 0;
    int status = read_word(entries, cursor);
    if (status)
        return status;
    int field = shl_field_of(entries->nodes[entries->node_count - 1].number);
    if (field < FIELDS && fields->node[field] >= 0)
        return twice(entries, (shl_slice){name, cursor->at - name}, cursor->line);
    if ((status = step_over_blank(cursor)))
        return status;
    if (cursor->at == cursor->end)
        return SHL_MORE;
    if (*cursor->at == '}')
        return SHL_READ_ODD_MAP;
    entries->is_aside = field >= FIELD_ERROR;
    const char *from = cursor->at;
    int32_t node = (int32_t)entries->node_count;
    if ((status = read_form(entries, cursor)) || field == FIELDS)
        return status;
    fields->node[field] = node;
    fields->slice[field] = (shl_slice){from, cursor->at - from};
    return SHL_READ_FINE;
}

static int read_map(shl_entries *entries, shl_cursor *cursor, shl_fields *fields)
{
    fields->root = shl_add_node(entries, SHL_NODE_MAP, 0);
    if (fields->root < 0)
        return SHL_READ_STOPPED;
    cursor->at++; /* the brace */
    for (int64_t children = 0;; children += 2) {
        int status = step_over_blank(cursor);
        if (status)
            return status;
        if (cursor->at == cursor->end)
            return SHL_MORE;
        if (*cursor->at == '}') {
            cursor->at++;
            entries->nodes[fields->root].number = children;
            entries->nodes[fields->root].next = (int32_t)entries->node_count;
            return SHL_READ_FINE;
        }
        if ((status = read_pair(entries, cursor, fields)))
            return status;
    }
}

static int read_entry(shl_entries *entries, shl_cursor *cursor)
{
    shl_reader *reader = &entries->reader;
    shl_fields fields;
    shl_fields_clear(&fields);
    fields.begin = cursor->at;
    fields.line = cursor->line;
    int status = skip_tags(cursor);
    if (!status && *cursor->at != '{')
        status = SHL_READ_NO_MAP;
    if (!status)
        status = read_map(entries, cursor, &fields);
    if (!status && shl_spans_two(reader, fields.begin, fields.line, cursor, SHL_EDN_MARK))
        status = SHL_READ_UNCLOSED;
    if (status == SHL_READ_UNCLOSED)
        reader->state.error_other = fields.line;
    return status ? status : shl_take_fields(entries, &fields);
}

static int find_in_edn(shl_entries *entries, shl_cursor *cursor, int32_t last, int *found)
{
    return find_entry(&entries->reader, cursor, last, found);
}

int shl_entries_edn(shl_entries *entries, shl_cursor *cursor, int32_t last)
{
    return shl_read_whole(entries, cursor, last, find_in_edn, read_entry);
}
