/* Stepping over EDN: space, comments, discarded forms, brackets that match. */
#ifndef SHL_INTERNAL_EDN_H
#define SHL_INTERNAL_EDN_H

#include "internal_read.h"

#include <string.h>

enum { DEEPEST = 128 };

enum { TOKEN = 0, SPACE = 1, DELIMITER = 2, CONTROL = 3 };

static const uint8_t CLASS[256] = {
    [0 ... 8] = CONTROL, [11] = CONTROL, [14 ... 31] = CONTROL, [127] = CONTROL,
    ['\t'] = SPACE, ['\n'] = SPACE, ['\f'] = SPACE, ['\r'] = SPACE, [' '] = SPACE, [','] = SPACE,
    ['('] = DELIMITER, [')'] = DELIMITER, ['['] = DELIMITER, [']'] = DELIMITER,
    ['{'] = DELIMITER, ['}'] = DELIMITER, ['"'] = DELIMITER, [';'] = DELIMITER,
};

static inline uint8_t class_of(char byte)
{
    return CLASS[(uint8_t)byte];
}

static int skip_form(shl_cursor *cursor);

static inline const char *find(shl_slice text, const char *what)
{
    return text.length > 0 ? memmem(text.at, (size_t)text.length, what, strlen(what)) : NULL;
}

static inline int has_operation(shl_slice text)
{
    return find(text, ":process") && find(text, ":type");
}

/* A comment that holds an operation is no comment: one damaged byte would make an operation
 * vanish without a word. */
static int skip_comment(shl_cursor *cursor)
{
    const char *newline = memchr(cursor->at, '\n', (size_t)(cursor->end - cursor->at));
    const char *end = newline ? newline : cursor->end;
    if (has_operation((shl_slice){cursor->at, end - cursor->at}))
        return SHL_READ_COMMENTED;
    cursor->at = end;
    return SHL_READ_FINE;
}

/* Space, commas, comments and discarded forms. The bytes may end here: that is no fault. */
static int skip_blank(shl_cursor *cursor)
{
    for (;;) {
        const char *at = cursor->at;
        while (at < cursor->end && class_of(*at) == SPACE)
            cursor->line += *at++ == '\n';
        cursor->at = at;
        if (at == cursor->end)
            return SHL_READ_FINE;
        if (*at == ';') {
            int status = skip_comment(cursor);
            if (status)
                return status;
        } else if (*at == '#' && at + 1 < cursor->end && at[1] == '_') {
            shl_cursor discard = *cursor;
            cursor->at += 2;
            int status = skip_form(cursor);
            if (!status && has_operation((shl_slice){discard.at, cursor->at - discard.at}))
                status = SHL_READ_COMMENTED;
            if (status == SHL_MORE || status == SHL_READ_COMMENTED)
                *cursor = discard; /* what is cut off begins here */
            if (status)
                return status;
        } else {
            return SHL_READ_FINE;
        }
    }
}

/* Mostly there is one space and no more, or none. */
static inline int blank(shl_cursor *cursor)
{
    const char *at = cursor->at;
    if (cursor->end - at < 2)
        return skip_blank(cursor);
    at += *at == ' ';
    if (class_of(*at) != TOKEN || *at == '#')
        return skip_blank(cursor);
    cursor->at = at;
    return SHL_READ_FINE;
}

static inline shl_slice read_token(shl_cursor *cursor)
{
    const char *from = cursor->at, *at = from;
    while (at < cursor->end && class_of(*at) == TOKEN)
        at++;
    cursor->at = at;
    return (shl_slice){from, at - from};
}

static int skip_string(shl_cursor *cursor)
{
    for (const char *at = cursor->at + 1; at < cursor->end; at++) {
        if (*at == '"') {
            cursor->at = at + 1;
            return SHL_READ_FINE;
        }
        cursor->line += *at == '\n';
        if (*at == '\\' && ++at < cursor->end)
            cursor->line += *at == '\n';
    }
    return SHL_MORE;
}

static inline char closer_of(char opener)
{
    return opener == '(' ? ')' : opener == '[' ? ']' : '}';
}

/* The brackets that are open, and how many forms are still to be discarded before one counts. */
typedef struct {
    char closers[DEEPEST];
    int32_t depth;
    int32_t discards;
} nesting;

static int open_bracket(shl_cursor *cursor, nesting *open, int64_t length, char closer)
{
    if (open->depth == DEEPEST)
        return SHL_READ_TOO_DEEP;
    open->closers[open->depth++] = closer;
    cursor->at += length;
    return SHL_READ_FINE;
}

/* Whether a form that ends here is the one that was asked for. */
static int is_whole(nesting *open)
{
    if (open->depth)
        return 0;
    return open->discards ? (open->discards--, 0) : 1;
}

/* What begins with a hash: a set, a discard, a tag, ##Inf. Tags and discards are followed by the
 * form that they belong to. */
static int skip_hash(shl_cursor *cursor, nesting *open, int *whole)
{
    if (cursor->at + 1 == cursor->end)
        return SHL_MORE;
    char next = cursor->at[1];
    if (next == '{')
        return open_bracket(cursor, open, 2, '}');
    if (next == '_') {
        cursor->at += 2;
        open->discards += !open->depth; /* within brackets nothing waits for a form */
        return SHL_READ_FINE;
    }
    if (next == '"') { /* a regular expression */
        cursor->at++;
        int status = skip_string(cursor);
        *whole = status == SHL_READ_FINE && is_whole(open);
        return status;
    }
    cursor->at++;
    if (next == '#') {
        cursor->at++;
        shl_slice name = read_token(cursor);
        if (!name.length)
            return cursor->at == cursor->end ? SHL_MORE : SHL_READ_UNEXPECTED;
        *whole = is_whole(open);
        return SHL_READ_FINE;
    }
    return read_token(cursor).length ? SHL_READ_FINE : SHL_READ_UNEXPECTED;
}

static int skip_character(shl_cursor *cursor)
{
    if (cursor->at + 1 >= cursor->end)
        return SHL_MORE;
    cursor->line += cursor->at[1] == '\n';
    cursor->at += 2;
    read_token(cursor);
    return SHL_READ_FINE;
}

static int close_bracket(shl_cursor *cursor, nesting *open, int *whole)
{
    if (!open->depth)
        return SHL_READ_UNEXPECTED;
    if (open->closers[open->depth - 1] != *cursor->at)
        return SHL_READ_MISMATCHED;
    open->depth--;
    cursor->at++;
    *whole = is_whole(open);
    return SHL_READ_FINE;
}

static int skip_piece(shl_cursor *cursor, nesting *open, int *whole)
{
    switch (*cursor->at) {
    case '(':
    case '[':
    case '{':
        return open_bracket(cursor, open, 1, closer_of(*cursor->at));
    case ')':
    case ']':
    case '}':
        return close_bracket(cursor, open, whole);
    case '"': {
        int status = skip_string(cursor);
        *whole = status == SHL_READ_FINE && is_whole(open);
        return status;
    }
    case '\\': {
        int status = skip_character(cursor);
        *whole = status == SHL_READ_FINE && is_whole(open);
        return status;
    }
    case '#':
        return skip_hash(cursor, open, whole);
    default:
        if (class_of(*cursor->at) == CONTROL)
            return SHL_READ_UNEXPECTED;
        read_token(cursor);
        *whole = is_whole(open);
        return SHL_READ_FINE;
    }
}

/* Steps over one form of any kind, with the tags and discards before it. */
static int skip_form(shl_cursor *cursor)
{
    nesting open;
    open.depth = 0;
    open.discards = 0;
    for (int whole = 0; !whole;) {
        const char *at = cursor->at;
        while (at < cursor->end && class_of(*at) == SPACE)
            cursor->line += *at++ == '\n';
        cursor->at = at;
        if (at == cursor->end)
            return SHL_MORE;
        int status;
        if (*at == ';') {
            if ((status = skip_comment(cursor)))
                return status;
            continue;
        }
        status = skip_piece(cursor, &open, &whole);
        if (status)
            return status;
    }
    return SHL_READ_FINE;
}

/* A vector of words and numbers on one line, which most are; 0: it is something else. */
static inline int skip_flat_vector(shl_cursor *cursor)
{
    const char *at = cursor->at + 1, *end = cursor->end;
    while (at < end && *at != '#' && *at != '\\' && *at != '\n'
           && (class_of(*at) == TOKEN || class_of(*at) == SPACE))
        at++;
    if (at == end || *at != ']')
        return 0;
    cursor->at = at + 1;
    return 1;
}

/* --- entries -----------------------------------------------------------------------------------*/

/* Moves to the next entry, through the bracket of a vector that holds all of them. *found: there
 * is one; otherwise the bytes end. SHL_READ_FINE, SHL_MORE, or what is wrong. */
static inline int find_entry(shl_reader *reader, shl_cursor *cursor, int32_t last, int *found)
{
    for (*found = 0;;) {
        shl_cursor at = *cursor;
        int status = skip_blank(&at);
        if (status > 0)
            return shl_complain(reader, status, at.line, at.at);
        if (status == SHL_READ_FINE && at.at == at.end) {
            /* A comment that the bytes cut may go on behind them. */
            if (last)
                *cursor = at;
            return last && reader->closer ? SHL_MORE : SHL_READ_FINE;
        }
        *cursor = at;
        if (status == SHL_MORE)
            return SHL_MORE;
        if (reader->closer ? *at.at != reader->closer : *at.at != '[' && *at.at != '(') {
            *found = 1;
            return SHL_READ_FINE;
        }
        reader->closer = reader->closer ? 0 : closer_of(*at.at);
        cursor->at++;
    }
}

/* Steps over the tags before an entry: #jepsen.history.Op{...}. */
static inline int skip_tags(shl_cursor *cursor)
{
    while (cursor->at < cursor->end && *cursor->at == '#') {
        cursor->at++;
        if (cursor->at < cursor->end && class_of(*cursor->at) != TOKEN)
            return SHL_READ_NO_MAP;
        read_token(cursor);
        int status = skip_blank(cursor);
        if (status)
            return status;
    }
    return cursor->at == cursor->end ? SHL_MORE : SHL_READ_FINE;
}

#endif
