/* What readers note beside the rows: what is odd about the order of entries, and the errors that
 * operations failed with. */
#include "internal_read.h"

void shl_note_odd(shl_reader *reader, int what, int64_t line)
{
    reader->state.oddities++;
    if (!reader->state.odd[what]++)
        reader->state.odd_line[what] = line;
}

/* What went back in time, or by its index; an index that was given twice is told as that alone. As
 * long as none was left out, every index between the first and the last was given. */
void shl_note_disorder(shl_reader *reader, const shl_entry *entry)
{
    if (entry->has_time) {
        if (reader->state.entries && entry->time < reader->last_time)
            shl_note_odd(reader, SHL_ODD_TIME_BACK, entry->line);
        reader->last_time = entry->time;
    }
    if (!entry->has_index)
        return;
    int64_t index = entry->index, last = reader->last_index;
    if (!reader->has_index) {
        reader->first_index = index;
        reader->gapless = reader->has_index = 1;
    } else if (index == last || (reader->gapless && index < last && index >= reader->first_index)) {
        shl_note_odd(reader, SHL_ODD_INDEX_TWICE, entry->line);
        return;
    } else if (index < last) {
        shl_note_odd(reader, SHL_ODD_INDEX_BACK, entry->line);
        reader->gapless = 0;
        return;
    } else {
        reader->gapless &= index == last + 1;
    }
    reader->last_index = index;
}

static int more_told(shl_reader *reader)
{
    int64_t pair = 2 * (int64_t)sizeof *reader->told, room = reader->told_room * 2 + 64;
    int32_t *told = reader->told ? shl_resize(reader->budget, reader->told,
                                              reader->told_room * pair, room * pair)
                                 : shl_alloc(reader->budget, room * pair);
    if (!told)
        return 0;
    reader->told = told;
    reader->told_room = room;
    return 1;
}

void shl_reader_errors(const shl_reader *reader, int32_t *rows, int32_t *errors)
{
    for (int64_t i = 0; i < reader->state.errors; i++) {
        rows[i] = reader->told[2 * i];
        errors[i] = reader->told[2 * i + 1];
    }
}

int shl_keep_error(shl_reader *reader, const shl_entry *entry, int64_t row)
{
    if (!entry->error.length || entry->type != SHL_FAIL)
        return 1;
    int32_t error =
        shl_name(&reader->names[SHL_READ_ERRORS], entry->error, entry->line, reader->budget);
    if (error < 0 || (reader->state.errors == reader->told_room && !more_told(reader)))
        return 0;
    int32_t *told = reader->told + 2 * reader->state.errors++;
    told[0] = (int32_t)row;
    told[1] = error;
    return 1;
}
