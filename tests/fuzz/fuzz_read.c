/* Feeds any bytes to the readers (checkers/engine/read*.c), for libFuzzer, under AddressSanitizer
 * and UndefinedBehaviorSanitizer; see scripts/fuzz.
 *
 * The first byte says the dialect and whether values are keyed, the second how long the pieces are.
 * What is checked beyond "no crash": a file read in pieces is the file read at once, with the same
 * complaint at the same place; what was read is a history; no memory is left. */
#include "../../shalott/checkers/engine/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void demand(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

/* A copy of its own for each piece, so that not a byte behind it can be looked at unseen. */
static int64_t feed_piece(shl_reader *reader, const uint8_t *bytes, size_t length, int last)
{
    char *piece = malloc(length ? length : 1);
    memcpy(piece, bytes, length);
    int64_t used = shl_reader_feed(reader, piece, (int64_t)length, last);
    free(piece);
    demand(used <= (int64_t)length, "no more is used than was given");
    return used;
}

static void feed(shl_reader *reader, const uint8_t *bytes, size_t size, size_t step)
{
    size_t begin = 0, end = 0;
    while (end < size) {
        end = size - end > step ? end + step : size;
        int64_t used = feed_piece(reader, bytes + begin, end - begin, 0);
        if (used < 0)
            return;
        begin += (size_t)used;
    }
    feed_piece(reader, bytes + begin, size - begin, 1);
}

static void *column(shl_reader *reader, int which)
{
    void *memory = shl_reader_column(reader, which);
    demand(memory || !shl_reader_state(reader)->operations, "every column is there");
    return memory;
}

static void check_codes(shl_reader *reader, int table, const int32_t *codes, int least)
{
    shl_slices slices;
    shl_reader_slices(reader, table, &slices);
    int64_t end = 0;
    for (int64_t i = 0; i < slices.count; i++) {
        demand(slices.ends[i] >= end && slices.lines[i] > 0, "slices follow each other");
        end = slices.ends[i] + 1; /* behind the separator */
    }
    demand(end == slices.bytes_used, "the last slice ends where all end");
    char *text = malloc((size_t)end + 1); /* every byte is there to be read */
    if (end)
        memcpy(text, slices.bytes, (size_t)end);
    for (int64_t i = 0; codes && i < shl_reader_state(reader)->operations; i++)
        demand(codes[i] >= least && codes[i] < slices.count, "a code has a slice");
    free(text);
}

static void check_values(shl_reader *reader, int kind_column, int number_column)
{
    shl_slices forms;
    shl_reader_slices(reader, SHL_READ_FORMS, &forms);
    uint8_t *kind = column(reader, kind_column);
    int64_t *number = column(reader, number_column);
    for (int64_t i = 0; i < shl_reader_state(reader)->operations; i++) {
        demand(kind[i] <= 2, "a value is nothing, an integer or a form");
        demand(kind[i] != 2 || (number[i] >= 0 && number[i] < forms.count), "a form is there");
    }
    shl_column_free(kind);
    shl_column_free(number);
}

static void check_times(shl_reader *reader)
{
    const shl_reading *state = shl_reader_state(reader);
    int32_t *call = column(reader, SHL_READ_CALL), *ret = column(reader, SHL_READ_RET);
    uint8_t *type = column(reader, SHL_READ_TYPE);
    uint8_t *taken = calloc((size_t)state->ranks + 1, 1);
    for (int64_t i = 0; i < state->operations; i++) {
        demand(call[i] >= 0 && call[i] < state->ranks && !taken[call[i]]++, "a call has a rank");
        demand(i == 0 || call[i] > call[i - 1], "operations are in order of their calls");
        demand(type[i] <= 2 && (type[i] == 2) == (ret[i] == SHL_NEVER), "what crashed never ends");
        if (ret[i] == SHL_NEVER)
            continue;
        demand(ret[i] > call[i] && ret[i] < state->ranks && !taken[ret[i]]++, "a ret has a rank");
    }
    shl_column_free(call);
    shl_column_free(ret);
    shl_column_free(type);
    free(taken);
}

/* Few rows are copied at once instead: into as much memory as they need, and not a byte more. A
 * column that was taken is gone, so this comes first. */
static void check_copy(shl_reader *reader)
{
    size_t rows = (size_t)shl_reader_state(reader)->operations;
    int64_t *wide = malloc(5 * rows * 8 + 1);
    int32_t *narrow = malloc(5 * rows * 4 + 1);
    uint8_t *bytes = malloc(3 * rows + 1);
    shl_reader_copy(reader, wide, narrow, bytes);
    for (size_t i = 0; i < rows; i++) {
        demand(wide[2 * rows + i] >= 0, "an operation has a place");
        demand((bytes[2 * rows + i] == 2) == (narrow[4 * rows + i] == SHL_NEVER), "type and ret");
    }
    free(wide);
    free(narrow);
    free(bytes);
}

static void check_history(shl_reader *reader)
{
    check_copy(reader);
    int32_t *f = column(reader, SHL_READ_F), *key = column(reader, SHL_READ_KEY);
    check_codes(reader, SHL_READ_WORDS, f, 0);
    check_codes(reader, SHL_READ_KEYS, key, -1);
    check_codes(reader, SHL_READ_FORMS, NULL, 0);
    shl_column_free(f);
    shl_column_free(key);
    check_values(reader, SHL_READ_ARGUMENT_KIND, SHL_READ_ARGUMENT_NUMBER);
    check_values(reader, SHL_READ_RESULT_KIND, SHL_READ_RESULT_NUMBER);
    check_times(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2)
        return 0;
    shl_budget budget = {0};
    int dialect = bytes[0] & 3, keyed = bytes[0] >> 2 & 1;
    size_t step = (size_t)bytes[1] * 2 + 8;
    shl_reader *whole = shl_reader_new(dialect, keyed, &budget);
    shl_reader *pieces = shl_reader_new(dialect, keyed, &budget);
    demand(whole && pieces, "there is memory");
    feed(whole, bytes + 2, size - 2, size);
    feed(pieces, bytes + 2, size - 2, step);
    const shl_reading *one = shl_reader_state(whole), *many = shl_reader_state(pieces);
    demand(one->error == many->error, "pieces: the same complaint");
    demand(one->error_line == many->error_line, "pieces: the same line");
    demand(one->error_column == many->error_column, "pieces: the same column");
    demand(one->operations == many->operations, "pieces: the same operations");
    demand(one->ranks == many->ranks && one->entries == many->entries, "pieces: the same ranks");
    demand(one->torn == many->torn && one->ignored == many->ignored, "pieces: the same notes");
    if (!one->error) {
        check_history(whole);
        check_history(pieces);
    }
    shl_reader_free(whole);
    shl_reader_free(pieces);
    demand(budget.bytes == 0, "all memory is given back");
    return 0;
}
