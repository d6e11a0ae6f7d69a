/* A reader's life: it is fed, it complains, it hands out what it read. */
#include "internal_read.h"

#include <string.h>

void shl_columns_free(shl_reader *reader);

shl_reader *shl_reader_new(int32_t dialect, int32_t how, shl_budget *budget)
{
    shl_reader *reader = shl_alloc_zeroed(budget, sizeof *reader);
    if (!reader)
        return NULL;
    reader->dialect = dialect;
    reader->keyed = how & SHL_READ_KEYED;
    reader->by_index = how & SHL_READ_BY_INDEX;
    reader->budget = budget;
    reader->state.line = 1;
    reader->state.timed = 1;
    reader->most_lines = 1;
    return reader;
}

void shl_reader_free(shl_reader *reader)
{
    if (!reader)
        return;
    shl_budget *budget = reader->budget;
    shl_columns_free(reader);
    for (int table = 0; table < SHL_READ_TABLES; table++)
        shl_names_free(&reader->names[table], budget);
    shl_names_free(&reader->faults, budget);
    shl_rows_free(&reader->open, budget);
    shl_rows_free(&reader->drains, budget);
    shl_free(budget, reader->idle, reader->idle_room * (int64_t)sizeof *reader->idle);
    shl_free(budget, reader, sizeof *reader);
}

const shl_reading *shl_reader_state(const shl_reader *reader)
{
    return &reader->state;
}

/* --- feeding -----------------------------------------------------------------------------------*/

static int read_line(shl_reader *reader, shl_cursor *line)
{
    if (reader->dialect == SHL_READ_RECORDING)
        return shl_read_recording_line(reader, line);
    if (reader->dialect == SHL_READ_JEPSEN_LOG)
        return shl_read_jepsen_line(reader, line);
    return shl_read_violin_line(reader, line);
}

/* The last line of a file that ends without a newline. JSON says where it ends; a log does not:
 * "return 4" may have been "return 49". */
static int read_open_line(shl_reader *reader, shl_cursor *cursor)
{
    shl_cursor line = {cursor->at, cursor->end, cursor->line};
    int status = SHL_MORE;
    if (line.at == line.end)
        return SHL_READ_FINE;
    if (reader->dialect == SHL_READ_RECORDING)
        status = read_line(reader, &line);
    if (status == SHL_READ_FINE)
        cursor->at = cursor->end;
    return status;
}

static int read_lines(shl_reader *reader, shl_cursor *cursor, int32_t last)
{
    while (cursor->at < cursor->end) {
        const char *newline = memchr(cursor->at, '\n', (size_t)(cursor->end - cursor->at));
        if (!newline)
            return last ? read_open_line(reader, cursor) : SHL_MORE;
        shl_cursor line = {cursor->at, newline, cursor->line};
        int status = read_line(reader, &line);
        if (status == SHL_MORE)
            return shl_complain(reader, SHL_READ_CUT_LINE, cursor->line, line.end);
        if (status)
            return status;
        cursor->at = newline + 1;
        cursor->line++;
    }
    return SHL_READ_FINE;
}

/* Remembers how far the next bytes begin behind their line's beginning. */
static void leave_line(shl_reader *reader, const char *at)
{
    reader->line_begin = shl_distance_in_line(reader, at);
}

int64_t shl_reader_feed(shl_reader *reader, const char *bytes, int64_t length, int32_t last)
{
    shl_cursor cursor = {bytes, bytes + length, reader->state.line};
    if (reader->state.error)
        return -1;
    reader->begin = bytes;
    int status = reader->dialect == SHL_READ_EDN ? shl_read_edn(reader, &cursor, last)
                                                 : read_lines(reader, &cursor, last);
    if (status == SHL_MORE && last && reader->dialect == SHL_READ_EDN &&
        shl_check_torn(reader, &cursor, SHL_EDN_MARK))
        return -1;
    if (last && status <= 0 && shl_check_faults(reader))
        return -1;
    if (status > 0)
        return -1;
    reader->state.line = cursor.line;
    if (status == SHL_MORE && last)
        reader->state.torn = cursor.line;
    leave_line(reader, cursor.at);
    reader->begin = NULL;
    return cursor.at - bytes;
}

/* --- tables ------------------------------------------------------------------------------------*/

void shl_reader_slices(const shl_reader *reader, int32_t table, shl_slices *slices)
{
    const shl_names *names = &reader->names[table];
    *slices = (shl_slices){names->count, names->bytes_used, names->bytes, names->ends,
                           names->lines};
}
