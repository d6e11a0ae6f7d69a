/* Unordered queues (bags) with distinct values: no value from nowhere, none twice, and no empty
 * dequeue while something was certainly there. The theory stands in monitor_queues.c. */
#include "internal_queues.h"

void shl_check_bag(const shl_queue_history *history, int32_t until, shl_budget *budget,
                   shl_answer *answer)
{
    queue_check check = {
        .history = history, .until = until, .budget = budget, .answer = answer};
    if (queue_open(&check, 0))
        queue_check_empties(&check);
    queue_close(&check);
}
