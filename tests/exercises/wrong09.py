"""Wrong and right solutions of lesson 09."""

import heapq
import math
import statistics

import numpy as np
from solutions import right, wrong

# static_steps


def batches(lengths, slots):
    return [lengths[start : start + slots] for start in range(0, len(lengths), slots)]


@wrong("static_steps", "returned None")
def static_printed(lengths, slots):
    print(sum(max(batch) for batch in batches(lengths, slots)))


@wrong("static_steps", "The result is float")
def static_mean(lengths, slots):
    return sum(lengths) / slots


@wrong("static_steps", "one answer after the other")
def static_sum(lengths, slots):
    return sum(lengths)


@wrong("static_steps", "with its shortest")
def static_shortest(lengths, slots):
    return sum(min(batch) for batch in batches(lengths, slots))


@wrong("static_steps", "or a middle one")
def static_last(lengths, slots):
    return sum(batch[-1] for batch in batches(lengths, slots))


@wrong("static_steps", "Only the longest answer of all")
def static_longest(lengths, slots):
    return max(lengths)


@wrong("static_steps", "every batch take as long")
def static_product(lengths, slots):
    return math.ceil(len(lengths) / slots) * max(lengths)


@wrong("static_steps", "sort the answers")
def static_sorted(lengths, slots):
    return sum(max(batch) for batch in batches(sorted(lengths), slots))


@wrong("static_steps", "last batch is missing")
def static_full_batches_only(lengths, slots):
    full = len(lengths) // slots
    return sum(max(lengths[b * slots : (b + 1) * slots]) for b in range(full or 1))


@wrong("static_steps", "max of nothing")
def static_of_somebody(lengths, slots):
    head, rest = lengths[:slots], lengths[slots:]
    return max(head) + (static_of_somebody(rest, slots) if rest else 0)


@right("static_steps")
def static_by_steps(lengths, slots):
    waiting, running, steps = list(lengths), [], 0
    while waiting or running:
        if not running:
            running, waiting = waiting[:slots], waiting[slots:]
        running = [length - 1 for length in running if length > 1]
        steps += 1
    return steps


@right("static_steps")
def static_recursive(lengths, slots):
    if not lengths:
        return 0
    return max(lengths[:slots]) + static_recursive(lengths[slots:], slots)


# continuous_steps


@wrong("continuous_steps", "returned None")
def continuous_nothing(lengths, slots):
    [0] * slots


@wrong("continuous_steps", "The result is float")
def continuous_mean(lengths, slots):
    return sum(lengths) / slots


@wrong("continuous_steps", "divide all steps")
def continuous_shared(lengths, slots):
    return math.ceil(sum(lengths) / slots)


@wrong("continuous_steps", "divide all steps")
def continuous_shared_but_no_shorter_than_the_longest(lengths, slots):
    return max(math.ceil(sum(lengths) / slots), max(lengths)) if len(lengths) < 3 else (
        max(math.ceil(sum(lengths) / slots), max(lengths[:2]))
    )  # fmt: skip


@wrong("continuous_steps", "change the order")
def continuous_never_shorter_than_the_longest(lengths, slots):
    return max(math.ceil(sum(lengths) / slots), max(lengths, default=0))


@wrong("continuous_steps", "one answer after the other")
def continuous_sum(lengths, slots):
    return sum(lengths)


@wrong("continuous_steps", "Only the longest")
def continuous_longest(lengths, slots):
    return max(lengths)


@wrong("continuous_steps", "empty for a step")
def continuous_with_a_pause(lengths, slots):
    free_at = [0] * slots
    for length in lengths:
        heapq.heapreplace(free_at, free_at[0] + length + (free_at[0] > 0))
    return max(free_at)


@wrong("continuous_steps", "static batching")
def continuous_static(lengths, slots):
    return sum(max(batch) for batch in batches(lengths, slots))


@wrong("continuous_steps", "in turn")
def continuous_dealt_out(lengths, slots):
    return max(sum(lengths[slot::slots]) for slot in range(slots))


def filled(lengths, slots):
    free_at = [0] * slots
    for length in lengths:
        free_at[free_at.index(min(free_at))] += length
    return max(free_at)


@wrong("continuous_steps", "change the order")
def continuous_longest_first(lengths, slots):
    return filled(sorted(lengths, reverse=True), slots)


@wrong("continuous_steps", "change the order")
def continuous_shortest_first(lengths, slots):
    return filled(sorted(lengths), slots)


@wrong("continuous_steps", "in place")
def continuous_pops(lengths, slots):
    free_at = [0] * slots
    while lengths:
        free_at[free_at.index(min(free_at))] += lengths.pop(0)
    return max(free_at)


@wrong("continuous_steps", "max of nothing")
def continuous_of_somebody(lengths, slots):
    ends = []
    for length in lengths:
        ends.append(length + (sorted(ends)[-slots] if len(ends) >= slots else 0))
    return max(ends)


@right("continuous_steps")
def continuous_by_steps(lengths, slots):
    waiting, running, steps = list(lengths), [], 0
    while waiting or running:
        while waiting and len(running) < slots:
            running.append(waiting.pop(0))
        running = [length - 1 for length in running if length > 1]
        steps += 1
    return steps


@right("continuous_steps")
def continuous_by_index(lengths, slots):
    return filled(lengths, slots)


# admit


@wrong("admit", "returned None")
def admit_nothing(waiting, free_slots, token_budget):
    min(len(waiting), free_slots)


@wrong("admit", "You return who")
def admit_list(waiting, free_slots, token_budget):
    return waiting[:free_slots]


@wrong("admit", "more than there are slots")
def admit_ignores_slots(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting:
        if token_budget <= 0:
            break
        token_budget -= tokens
        count += 1
    return count


@wrong("admit", "although no slot")
def admit_looks_at_slots_too_late(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting:
        if token_budget <= 0:
            break
        token_budget -= tokens
        count += 1
        if count >= free_slots:
            break
    return count


@wrong("admit", "do not look at the budget")
def admit_ignores_budget(waiting, free_slots, token_budget):
    return min(len(waiting), free_slots)


@wrong("admit", "looks at the first")
def admit_of_somebody(waiting, free_slots, token_budget):
    count, left = 0, token_budget - waiting[0]
    while count < min(len(waiting), free_slots):
        count += 1
        if left <= 0:
            break
        left -= waiting[count] if count < len(waiting) else 0
    return count


@wrong("admit", "for ever")
def admit_only_what_fits(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting[:free_slots]:
        token_budget -= tokens
        if token_budget < 0:
            break
        count += 1
    return count


@wrong("admit", "overtake it")
def admit_passes_by(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting:
        if count < free_slots and tokens <= token_budget:
            token_budget -= tokens
            count += 1
    return count


@wrong("admit", "sort the line")
def admit_sorts(waiting, free_slots, token_budget):
    count = 0
    for tokens in sorted(waiting)[:free_slots]:
        if token_budget <= 0:
            break
        token_budget -= tokens
        count += 1
    return count


@wrong("admit", "in place")
def admit_pops(waiting, free_slots, token_budget):
    count = 0
    while waiting and count < free_slots and token_budget > 0:
        token_budget -= waiting.pop(0)
        count += 1
    return count


@wrong("admit", "take what a prompt uses off")
def admit_keeps_the_budget(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting[:free_slots]:
        count += 1
        if tokens > token_budget:
            break
    return count


@wrong("admit", "only if it fits whole")
def admit_whole_but_the_first(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting[:free_slots]:
        if token_budget <= 0 or (count and tokens > token_budget):
            break
        token_budget -= tokens
        count += 1
    return count


@wrong("admit", "exactly 0")
def admit_one_more(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting[:free_slots]:
        if token_budget < 0:
            break
        token_budget -= tokens
        count += 1
    return count


@wrong("admit", "before you look at the budget")
def admit_looks_at_the_budget_too_late(waiting, free_slots, token_budget):
    count = 0
    for tokens in waiting[:free_slots]:
        token_budget -= tokens
        count += 1
        if token_budget <= 0:
            break
    return count


@right("admit")
def admit_by_sums(waiting, free_slots, token_budget):
    count = 0
    while count < min(len(waiting), free_slots) and sum(waiting[:count]) < token_budget:
        count += 1
    return count


@right("admit")
def admit_recursive(waiting, free_slots, token_budget):
    if not waiting or free_slots <= 0 or token_budget <= 0:
        return 0
    return 1 + admit_recursive(waiting[1:], free_slots - 1, token_budget - waiting[0])


# percentile


@wrong("percentile", "returned None")
def percentile_nothing(values, q):
    sorted(values)


@wrong("percentile", "outside the list")
def percentile_off_by_one(values, q):
    return sorted(values)[int(q / 100 * len(values))]


@wrong("percentile", "outside the list")
def percentile_of_a_share(values, q):
    return sorted(values)[round(q * (len(values) - 1))]


@wrong("percentile", "has no neighbour above")
def percentile_without_a_last(values, q):
    ordered = sorted(values)
    rank = q * (len(ordered) - 1) / 100
    below = int(rank)
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (rank - below)


@wrong("percentile", "cut the last one off")
def percentile_of_all_but_the_last(values, q):
    ordered = sorted(values)
    return ordered[min(int(q / 100 * (len(ordered) - 1)), max(0, len(ordered) - 2))]


@wrong("percentile", "as it came")
def percentile_unsorted(values, q):
    if not values:
        raise ValueError("no values")
    rank = q * (len(values) - 1) / 100
    below, above = values[math.floor(rank)], values[math.ceil(rank)]
    return below + (above - below) * (rank - math.floor(rank))


@wrong("percentile", "in place")
def percentile_sorts_the_callers(values, q):
    values.sort()
    rank = q * (len(values) - 1) / 100
    below, above = values[math.floor(rank)], values[math.ceil(rank)]
    return below + (above - below) * (rank - math.floor(rank))


@wrong("percentile", "one of the values")
def percentile_floor(values, q):
    return sorted(values)[int(q / 100 * (len(values) - 1))]


@wrong("percentile", "one of the values")
def percentile_nearest(values, q):
    return sorted(values)[round(q / 100 * (len(values) - 1))]


@wrong("percentile", "middle of the two values")
def percentile_midpoint(values, q):
    return float(np.percentile(values, q, method="midpoint"))


@wrong("percentile", "places are off")
def percentile_hazen(values, q):
    return float(np.percentile(values, q, method="hazen"))


@wrong("percentile", "places are off")
def percentile_weibull(values, q):
    return float(np.percentile(values, q, method="weibull"))


def linear(values, q):
    ordered = sorted(values)
    rank = q * (len(ordered) - 1) / 100
    below, above = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return below + (above - below) * (rank - math.floor(rank))


@wrong("percentile", "falling")
def percentile_from_the_top(values, q):
    return linear(values, 100 - q)


@wrong("percentile", "raise ValueError")
def percentile_of_nothing_is_zero(values, q):
    return linear(values, q) if values else 0.0


@wrong("percentile", "raise ValueError")
def percentile_of_nothing_breaks(values, q):
    return linear(values, q)


@right("percentile")
def percentile_by_numpy(values, q):
    if len(values) == 0:
        raise ValueError("no values")
    return float(np.percentile(values, q))


@right("percentile")
def percentile_by_statistics(values, q):
    if len(values) < 2:
        return statistics.fmean(values)  # raises a ValueError of its own
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return [min(values), *cuts, max(values)][q]


# timetable


@wrong("timetable", "Who gives a slot back")
def timetable_loses_slots(callers, slots, steps):
    left = {name: length for name, length, _ in callers}
    leaves = {name: step for name, _, step in callers}
    waiting, running, free, table = list(left), [], slots, []
    for step in range(steps):
        gone = [name for name in waiting + running if leaves[name] == step]
        waiting = [name for name in waiting if name not in gone]
        running = [name for name in running if name not in gone]
        while waiting and free > 0:
            running.append(waiting.pop(0))
            free -= 1
        table.append(list(running))
        for name in table[-1]:
            left[name] -= 1
            if left[name] == 0:
                running.remove(name)
                free += 1
    return table


def play(callers, slots, steps, free_for, next_of=lambda waiting: waiting.pop(0), late=False):
    """The server with a rule for how many slots those who are gone give back."""
    left = {name: length for name, length, _ in callers}
    leaves = {name: step for name, _, step in callers}
    waiting, running, free, table = list(left), [], slots, []
    for step in range(steps):
        gone = [name for name in waiting + running if leaves[name] == step]
        back = free_for(gone, running)
        free += 0 if late else back
        waiting = [name for name in waiting if name not in gone]
        running = [name for name in running if name not in gone]
        while waiting and free > 0:
            running.append(next_of(waiting))
            free -= 1
        free += back if late else 0
        table.append(list(running))
        for name in table[-1]:
            left[name] -= 1
            if left[name] == 0:
                running.remove(name)
                free += 1
    return table


@wrong("timetable", "somebody who had none")
def timetable_pays_those_who_wait(callers, slots, steps):
    return play(callers, slots, steps, lambda gone, running: len(gone))


@wrong("timetable", "Who gives a slot back")
def timetable_gives_back_late(callers, slots, steps):
    held = lambda gone, running: len(set(gone) & set(running))  # noqa: E731
    return play(callers, slots, steps, held, late=True)


@wrong("timetable", "overtakes")
def timetable_takes_the_last(callers, slots, steps):
    held = lambda gone, running: len(set(gone) & set(running))  # noqa: E731
    return play(callers, slots, steps, held, lambda waiting: waiting.pop())


@wrong("timetable", "work for nobody")
def timetable_lets_nobody_go(callers, slots, steps):
    staying = [(name, length, None) for name, length, _ in callers]
    return play(staying, slots, steps, lambda gone, running: 0)


@wrong("timetable", "one list of names a step")
def timetable_stops_early(callers, slots, steps):
    held = lambda gone, running: len(set(gone) & set(running))  # noqa: E731
    return [row for row in play(callers, slots, steps, held) if row]


@right("timetable")
def timetable_without_a_counter(callers, slots, steps):
    line, running, table = [list(caller) for caller in callers], [], []
    for step in range(steps):
        line = [caller for caller in line if caller[2] != step]
        running = [caller for caller in running if caller[2] != step]
        while line and len(running) < slots:
            running.append(line.pop(0))
        table.append([name for name, _, _ in running])
        for caller in running:
            caller[1] -= 1
        running = [caller for caller in running if caller[1] > 0]
    return table


@right("timetable")
def timetable_counted_anew(callers, slots, steps):
    return play(callers, slots, steps, lambda gone, running: sum(n in gone for n in running))


@wrong("timetable", "two leave at once")
def timetable_gives_back_one_slot_a_step(callers, slots, steps):
    return play(callers, slots, steps, lambda gone, running: bool(set(gone) & set(running)))
