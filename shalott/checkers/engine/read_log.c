/* Logs, an entry a line: Jepsen's own (as Porcupine's tests keep those of etcd), and Violin's. */
#define _GNU_SOURCE /* memmem */
#include "internal_read.h"

#include <string.h>

static int is_space(char byte)
{
    static const uint8_t SPACE[256] = {[' '] = 1, ['\t'] = 1, ['\r'] = 1};
    return SPACE[(uint8_t)byte];
}

static void skip_space(shl_cursor *line)
{
    const char *at = line->at, *end = line->end;
    while (at < end && is_space(*at))
        at++;
    line->at = at;
}

static shl_slice word(shl_cursor *line)
{
    skip_space(line);
    const char *from = line->at, *at = from, *end = line->end;
    while (at < end && !is_space(*at))
        at++;
    line->at = at;
    return (shl_slice){from, at - from};
}

static int complain_of(shl_reader *reader, int code, int64_t line, shl_slice met)
{
    shl_complain_of(reader, met);
    return shl_complain(reader, code, line, met.at);
}

/* --- Jepsen ------------------------------------------------------------------------------------*/

/* What a logger puts before the entry ends in " - "; without it the line is the entry. It
 * mostly stands where it stood in the line before; there it is the first one if no other fits
 * before it, since no two of them overlap. */
static void skip_logger(shl_reader *reader, shl_cursor *line)
{
    static const char LOGGER[] = "jepsen.util - ";
    int64_t length = (int64_t)sizeof LOGGER - 1, space = line->end - line->at - length;
    int64_t before = reader->logger_at;
    if (space < 0)
        return;
    if (before < length && before <= space && !memcmp(line->at + before, LOGGER, (size_t)length)) {
        line->at += before + length;
        return;
    }
    const char *found = memmem(line->at, (size_t)(space + length), LOGGER, (size_t)length);
    if (found) {
        reader->logger_at = found - line->at;
        line->at = found + length;
    }
}

static shl_slice without_colon(shl_slice keyword)
{
    return (shl_slice){keyword.at + 1, keyword.length - 1};
}

enum { NO_ENTRY, OF_NEMESIS, OF_PROCESS };

static int looks_like(shl_slice process, shl_slice type, int64_t *number)
{
    if (type.length < 2 || *type.at != ':')
        return NO_ENTRY;
    if (process.length == 1 && (uint8_t)(*process.at - '0') < 10) {
        *number = *process.at - '0';
        return OF_PROCESS;
    }
    if (shl_edn_integer(process, number))
        return OF_PROCESS;
    return SHL_IS(process, ":nemesis") ? OF_NEMESIS : NO_ENTRY;
}

/* A type and an f behind each other, as no line has them but one about an operation. */
static int has_type_and_f(shl_slice text)
{
    shl_cursor rest = {text.at, text.at + text.length, 0};
    shl_slice before = {text.at, 0};
    while (rest.at < rest.end) {
        shl_slice next = word(&rest);
        const char *colon = memrchr(before.at, ':', (size_t)before.length);
        if (next.length > 1 && *next.at == ':' && colon) {
            int64_t skipped = colon + 1 - before.at; /* a space before the type may be missing */
            shl_slice type = {colon + 1, before.length - skipped};
            if (shl_entry_type(type) != SHL_NO_TYPE)
                return 1;
        }
        before = next;
    }
    return 0;
}

/* A line that is no operation may be passed over, but none that one damaged byte could have made of
 * an operation: it has the logger, or a type before an f, or a process with an f in its place. */
static int pass_over(shl_reader *reader, shl_slice whole, int has_logger, shl_slice process,
                     shl_slice type, shl_cursor *behind_type)
{
    int64_t number;
    shl_slice f = word(behind_type);
    int has_process = shl_edn_integer(process, &number) || SHL_IS(process, ":nemesis");
    int has_f = f.length > 1 && *f.at == ':';
    has_f |= type.length == 0 || *type.at == ':'; /* or what came behind is gone */
    if (has_logger || (has_process && has_f) || has_type_and_f(whole))
        return complain_of(reader, SHL_READ_ODD_LINE, behind_type->line, whole);
    reader->state.ignored++;
    return SHL_READ_FINE;
}

int shl_read_jepsen_line(shl_reader *reader, shl_cursor *line)
{
    const char *begin = line->at;
    skip_logger(reader, line);
    int has_logger = line->at > begin;
    shl_entry entry = {.line = line->line};
    shl_slice process = word(line), type = word(line);
    int who = looks_like(process, type, &entry.id);
    if (who == NO_ENTRY && process.length == 0)
        return SHL_READ_FINE; /* it is blank */
    if (who == NO_ENTRY)
        return pass_over(reader, (shl_slice){begin, line->end - begin}, has_logger, process, type,
                         line);
    /* A second entry on the line: the newline between the two is gone. */
    if (has_type_and_f((shl_slice){line->at, line->end - line->at}))
        return complain_of(reader, SHL_READ_ODD_LINE, line->line, process);
    if (who == OF_NEMESIS) {
        shl_take_nemesis(reader, line->line);
        return SHL_READ_FINE;
    }
    shl_slice f = word(line);
    entry.process = entry.id;
    if (entry.id < 0 || entry.id > INT32_MAX)
        return complain_of(reader, SHL_READ_BAD_PROCESS, line->line, process);
    entry.type = shl_entry_type(without_colon(type));
    if (entry.type == SHL_NO_TYPE)
        return complain_of(reader, SHL_READ_BAD_TYPE, line->line, type);
    if (f.length < 2 || *f.at != ':')
        return complain_of(reader, f.length ? SHL_READ_BAD_F : SHL_READ_NO_F, line->line, f);
    entry.f = without_colon(f);
    skip_space(line);
    if (line->at < line->end) {
        int status = shl_edn_value(line, &entry.value);
        if (status == SHL_MORE)
            return SHL_MORE;
        if (status)
            return shl_complain(reader, status, line->line, line->at);
        if (entry.type == SHL_FAIL && *entry.value.slice.at == ':') { /* its error stands there */
            entry.empty = (uint8_t)shl_says_empty(without_colon(entry.value.slice));
            if (SHL_IS(entry.f, "cas"))
                entry.error = entry.value.slice;
        }
    }
    return shl_take_entry(reader, &entry, process.at);
}

/* --- Violin ------------------------------------------------------------------------------------*/

/* Violin names no processes, only operations: each takes the process that was idle last. */
static int32_t take_process(shl_reader *reader)
{
    return reader->idle_count ? reader->idle[--reader->idle_count] : reader->processes++;
}

static int give_process(shl_reader *reader, int32_t process)
{
    if (reader->idle_count == reader->idle_room) {
        int64_t bytes = (int64_t)sizeof *reader->idle, room = reader->idle_room * 2 + 16;
        int32_t *idle = reader->idle ? shl_resize(reader->budget, reader->idle,
                                                  reader->idle_room * bytes, room * bytes)
                                     : shl_alloc(reader->budget, room * bytes);
        if (!idle)
            return 0;
        reader->idle = idle;
        reader->idle_room = room;
    }
    reader->idle[reader->idle_count++] = process;
    return 1;
}

/* [id] */
static int read_id(shl_reader *reader, shl_cursor *line, int64_t *id)
{
    skip_space(line);
    const char *from = line->at;
    const char *close = memchr(from, ']', (size_t)(line->end - from));
    if (from == line->end || *from != '[')
        return shl_complain(reader, SHL_READ_NO_MAP, line->line, from);
    if (!close)
        return SHL_MORE;
    if (!shl_edn_integer((shl_slice){from + 1, close - from - 1}, id))
        return complain_of(reader, SHL_READ_BAD_PROCESS, line->line,
                           (shl_slice){from, close - from + 1});
    line->at = close + 1;
    return SHL_READ_FINE;
}

/* name or name(argument) */
static int read_call(shl_cursor *line, shl_entry *entry)
{
    skip_space(line);
    const char *from = line->at, *at = from;
    while (at < line->end && *at != '(' && !is_space(*at))
        at++;
    entry->f = (shl_slice){from, at - from};
    if (at == from)
        return SHL_READ_NO_F;
    line->at = at;
    if (at == line->end || *at != '(')
        return SHL_READ_FINE;
    line->at++;
    skip_space(line);
    if (line->at < line->end && *line->at != ')') {
        int status = shl_edn_value(line, &entry->value);
        if (status)
            return status;
    }
    skip_space(line);
    if (line->at == line->end)
        return SHL_MORE;
    if (*line->at != ')')
        return SHL_READ_UNEXPECTED;
    line->at++;
    return SHL_READ_FINE;
}

static int read_return(shl_cursor *line, shl_entry *entry)
{
    skip_space(line);
    if (line->at == line->end)
        return SHL_READ_FINE;
    int status = shl_edn_value(line, &entry->value);
    if (!status && SHL_IS(entry->value.slice, "empty"))
        entry->value.kind = SHL_NOTHING;
    return status;
}

static int take_call(shl_reader *reader, shl_entry *entry, const char *begin)
{
    entry->type = SHL_INVOKE;
    entry->process = take_process(reader);
    return shl_take_entry(reader, entry, begin);
}

static int take_return(shl_reader *reader, shl_entry *entry, const char *begin)
{
    entry->type = SHL_OK;
    int status = shl_take_entry(reader, entry, begin);
    if (status)
        return status;
    int64_t *place = shl_row_of(&reader->open, entry->id, reader->budget);
    const int32_t *processes = reader->columns[SHL_READ_PROCESS];
    if (!place || !give_process(reader, processes[-*place - 1]))
        return shl_complain(reader, SHL_READ_STOPPED, entry->line, begin);
    return SHL_READ_FINE;
}

static int is_call_or_return(shl_slice comment)
{
    return memmem(comment.at, (size_t)comment.length, "] call ", 7) ||
           memmem(comment.at, (size_t)comment.length, "] return", 8);
}

int shl_read_violin_line(shl_reader *reader, shl_cursor *line)
{
    const char *begin = line->at;
    shl_entry entry = {.line = line->line, .once = 1};
    skip_space(line);
    if (line->at == line->end)
        return SHL_READ_FINE;
    if (*line->at == '#')
        return is_call_or_return((shl_slice){line->at, line->end - line->at})
                   ? complain_of(reader, SHL_READ_COMMENTED, line->line, (shl_slice){line->at, 0})
                   : SHL_READ_FINE;
    int status = read_id(reader, line, &entry.id);
    if (status)
        return status;
    shl_slice what = word(line);
    int call = SHL_IS(what, "call");
    if (!call && !SHL_IS(what, "return"))
        return complain_of(reader, SHL_READ_BAD_TYPE, line->line, what);
    status = call ? read_call(line, &entry) : read_return(line, &entry);
    skip_space(line);
    if (!status && line->at < line->end)
        status = SHL_READ_UNEXPECTED;
    if (status == SHL_MORE)
        return SHL_MORE;
    if (status)
        return shl_complain(reader, status, line->line, line->at);
    return call ? take_call(reader, &entry, begin) : take_return(reader, &entry, begin);
}
