"""Cases of lesson 09: steps with and without holes, who is let in, percentiles, a lost slot."""

from collections.abc import Sequence
from typing import Any

from ..batch import admit
from ..percentile import percentile
from ..schedule import continuous_steps, static_steps
from .compare import Diagnosis, equal, expect, gives, instance
from .task import Stage, Task, Words, Wrong


def _whole_number(what: str, *arguments: Any) -> Stage:
    """The first stage of a task that counts something."""

    def run(fn: Any) -> None:
        got = fn(*arguments)
        hint = f"The result is {type(got).__name__}. {what} are counted whole: return an int."
        instance(got, int, f"an int: {what.lower()}", hint="" if got is None else hint)

    return Stage("type", "a whole number", run)


# static_steps
STATIC_STEPS = Task(
    name="static_steps",
    lesson=9,
    minutes=5,
    difficulty="easy",
    statement="Count the steps of static batching.",
    solution=static_steps,
    hints=(
        "Cut the answers into batches, in their order. A batch is over when its longest answer is.",
        "Batch number b holds lengths[b * slots : (b + 1) * slots]; the last may hold fewer. Its "
        "steps are the largest of them.",
        "for start in range(0, len(lengths), slots): take max(lengths[start : start + slots]), "
        "and add these up.",
    ),
    stages=(
        _whole_number("Steps", [3, 7, 5], 4),
        gives(
            "one batch",
            "three answers, four slots",
            lambda fn: fn([3, 7, 5], 4),
            7,
            "steps",
            "All three start together, and the batch is over when the longest of them is.",
            (15, "These are the steps of one answer after the other. A batch runs together."),
            (5, "This is the length of the last answer, or a middle one. The longest decides."),
            (3, "The batch is not over with its shortest answer: all of them have to be done."),
        ),
        gives(
            "two batches",
            "six answers, three slots",
            lambda fn: fn([3, 7, 5, 2, 2, 4], 3),
            11,
            "steps",
            "The first three take 7 steps and the other three 4. The batches run one after "
            "the other.",
            (7, "Only the longest answer of all counts for you; each batch has its own longest."),
            (14, "You let every batch take as long as the longest answer of all. Each batch has "
                 "its own longest."),
            (10, "You sort the answers first. They come in the order in which they asked."),
        ),
        gives(
            "remainder",
            "a last batch that is not full",
            lambda fn: fn([2, 2, 5], 2),
            7,
            "steps",
            "The third answer is a batch by itself.",
            (2, "The last batch is missing: it has fewer answers than slots, but it runs."),
        ),
        gives(
            "nobody",
            "no answers take no steps",
            lambda fn: fn([], 3),
            0,
            "steps",
            "Nobody asked, so there are 0 steps.",
            raises=((ValueError, "empty", "Nobody asked, and yours takes the max of nothing."),),
        ),
    ),
)  # fmt: skip


# continuous_steps
LATE = "You change the order. Whoever came first is let in first, long or short."

CONTINUOUS_STEPS = Task(
    name="continuous_steps",
    lesson=9,
    minutes=15,
    difficulty="medium",
    statement="Count the steps of continuous batching.",
    solution=continuous_steps,
    hints=(
        "Keep for each slot after how many steps it will be free. Who is next in line gets the "
        "slot that is free first.",
        "A list of `slots` numbers, all 0 at first. Each answer adds its length to the smallest. "
        "In the end the largest is the number of steps.",
        "free_at = [0] * slots; for each length: i = free_at.index(min(free_at)), then "
        "free_at[i] += length. Return max(free_at).",
    ),
    stages=(
        _whole_number("Steps", [3, 7, 5], 4),
        gives(
            "room for all",
            "three answers, four slots",
            lambda fn: fn([3, 7, 5], 4),
            7,
            "steps",
            "Each has a slot from the beginning, and the longest is done last.",
            (15, "These are the steps of one answer after the other. They run together."),
            (4, "You divide all steps by the slots. One answer cannot run in two slots at once: "
                "its tokens come one after the other."),
        ),
        gives(
            "one slot",
            "three answers, one slot",
            lambda fn: fn([3, 7, 5], 1),
            15,
            "steps",
            "With one slot they run one after the other.",
            (7, "Only the longest answer counts for you. With one slot they run one after the "
                "other."),
            (17, "Between two answers your slot is empty for a step. The next begins in the very "
                 "next step."),
            (18, "You count a step too many for each answer."),
        ),
        gives(
            "holes",
            "a slot that becomes free is taken at once",
            lambda fn: fn([2, 8, 1, 2, 3], 2),
            8,
            "steps",
            "While the answer of 8 runs in one slot, the other takes 2, 1, 2 and 3, which is 8 "
            "steps as well.",
            (13, "This is static batching: yours waits until all of a batch are done."),
            (11, LATE),
            (10, "You deal the answers out to the slots in turn. The next in line gets whichever "
                 "slot is free first."),
        ),
        gives(
            "a late long one",
            "the last answer begins when a slot is free",
            lambda fn: fn([2, 2, 9], 2),
            11,
            "steps",
            "The third answer begins after 2 steps and takes 9.",
            (7, "You divide all steps by the slots. One answer cannot run in two slots at once: "
                "its tokens come one after the other."),
            (9, LATE),
        ),
        gives(
            "order",
            "in the order in which they came",
            lambda fn: fn([1, 1, 6, 1, 1, 6], 2),
            9,
            "steps",
            "The last answer begins after 3 steps, in the slot that had three short ones.",
            (8, LATE),
        ),
        gives(
            "nobody",
            "no answers take no steps",
            lambda fn: fn([], 3),
            0,
            "steps",
            "Nobody asked, so there are 0 steps.",
            raises=(
                (ValueError, "empty", "Nobody asked, and yours takes the max of nothing."),
            ),
        ),
        gives(
            "whole",
            "the eight callers of the lesson",
            lambda fn: fn([12, 2, 4, 8, 10, 2, 4, 6], 4),
            14,
            "steps",
            "Follow the four slots by hand: when is each free, and who is next?",
        ),
    ),
)  # fmt: skip


# admit
def _admit_cases(fn: Any) -> None:
    for waiting, free_slots, budget in (
        ([100, 100, 100, 20, 7, 500, 3], 8, 330),
        ([9, 9, 9], 2, 10),
        ([129, 1], 2, 128),
        ([1] * 9, 9, 5),
    ):
        hint = "Go through the line by hand: is there a slot, and is any of the budget left?"
        equal(fn(waiting, free_slots, budget), admit(waiting, free_slots, budget), "count", hint)


def _admit_type(fn: Any) -> None:
    got = fn([10, 20], 4, 100)
    instance(got, int, "an int: how many are let in", hint=_admit_hint(got))


def _admit_hint(got: Any) -> str:
    if isinstance(got, (list, tuple)):
        return "You return who is let in. Asked for is how many: the first so many of the line."
    return "" if got is None else f"The result is {type(got).__name__}. Return how many, an int."


ADMIT = Task(
    name="admit",
    lesson=9,
    minutes=10,
    difficulty="medium",
    statement="Say how many of those who wait may come in.",
    solution=admit,
    hints=(
        "Go through the line from its front. Each of them needs a slot, and some of the step's "
        "budget must be left when it is their turn. At the first who may not come in, stop.",
        "Whether a prompt fits whole does not matter, since the rest of it is read in later "
        "steps. Look at the budget before you take the prompt off it, not after.",
        "for tokens in waiting[:free_slots]: if token_budget <= 0, break; token_budget -= tokens; "
        "count += 1.",
    ),
    stages=(
        Stage("type", "a number of callers", _admit_type),
        gives(
            "slots",
            "no more than there are free slots",
            lambda fn: fn([5] * 6, 2, 1000),
            2,
            "count",
            "Six are waiting, and two slots are free.",
            (lambda got: got > 2, "You let in more than there are slots. Each needs one."),
        ),
        gives(
            "no slot",
            "nobody, where no slot is free",
            lambda fn: fn([5, 5], 0, 1000),
            0,
            "count",
            "Two are waiting, and no slot is free.",
            (lambda got: got > 0, "You let somebody in although no slot is free."),
        ),
        gives(
            "nobody",
            "an empty line",
            lambda fn: fn([], 4, 100),
            0,
            "count",
            "Nobody is waiting, so nobody is let in.",
            raises=((IndexError, "", "Nobody is waiting, and yours looks at the first of them."),),
        ),
        gives(
            "a long prompt",
            "a prompt longer than the budget, at the front of the line",
            lambda fn: fn([300, 10, 10, 10], 4, 25),
            1,
            "count",
            "The first is let in, and uses up all of this step's budget and more.",
            (0, "A prompt that is longer than a step's budget would be refused for ever, and all "
                "behind it wait. It is read in pieces: let it in while any budget is left."),
            (4, "You do not look at the budget. Once it is used up, nobody else comes in."),
            (2, "You pass a long prompt by, and shorter ones overtake it. With enough short ones "
                "it is never its turn."),
            (3, "You sort the line by length, or pass the long one by. Nobody overtakes."),
        ),
        gives(
            "what is left",
            "a prompt that fits in part",
            lambda fn: fn([60, 60, 60, 60], 4, 100),
            2,
            "count",
            "The first leaves 40 of the budget. The second can use them, and the rest of its "
            "prompt is read later; then nothing is left.",
            (4, "You do not take what a prompt uses off the budget."),
            (1, "You let the second in only if it fits whole. It could use the 40 that are left, "
                "and be read on later."),
            (3, "Your budget is used up after the second, and you let in one more."),
        ),
        gives(
            "used up",
            "a budget that is used up to the last token",
            lambda fn: fn([50, 50, 50], 3, 100),
            2,
            "count",
            "The first two take 100 tokens, and nothing of the budget of 100 is left.",
            (3, "A budget of exactly 0 is used up, and you let in one more. Compare with <= or >."),
        ),
        gives(
            "no budget",
            "a budget of 0 from the beginning",
            lambda fn: fn([5], 1, 0),
            0,
            "count",
            "There is nothing of the budget left for anybody.",
            (1, "You let the first in before you look at the budget, and it is 0 already."),
        ),
        Stage("whole", "lines of all kinds", _admit_cases),
    ),
)  # fmt: skip


# percentile
def _percentile_type(fn: Any) -> None:
    got = fn([3.0], 50)
    instance(got, (int, float), "a number")
    hint = "Of a single value, every percentile is that value."
    equal(got, 3.0, "percentile", hint)


def _percentile_empty(fn: Any) -> None:
    hint = (
        "Of no values there is no percentile: raise ValueError, so that nobody reads a 0 as fast."
    )
    try:
        got = fn([], 50)
    except ValueError:
        return
    except (IndexError, ZeroDivisionError) as error:
        got = Words(type(error).__name__)
    raise Wrong(hint, expected=Words("ValueError"), got=got)


OUTSIDE = (
    IndexError,
    "",
    "You take something from outside the list. n values have the places 0 to n - 1, and q is in "
    "per cent: q = 100 is the last place, n - 1, and no place n comes after it.",
)
NO_NEXT = (
    IndexError,
    "",
    "A single value has place 0 only. Is it the neighbour above that yours looks for, at place 1? "
    "The last place has no neighbour above, here as at q = 100 of any list: take the neighbour "
    "only where there is one.",
)


def _one_of(*values: float) -> Any:
    return lambda got: got in values


PERCENTILE = Task(
    name="percentile",
    lesson=9,
    minutes=10,
    difficulty="medium",
    statement="Say what q per cent of some values do not exceed.",
    solution=percentile,
    hints=(
        "Sort a copy. q = 0 is the first place and q = 100 the last; q says how far along the way "
        "between them you look, which may be between two places.",
        "n values have the places 0 … n - 1, so you look at place q / 100 * (n - 1). Its whole "
        "part is the place below, what is left the share of the way to the next.",
        "rank = q * (n - 1) / 100; below = int(rank); share = rank - below; and the result is "
        "ordered[below] + share * (ordered[below + 1] - ordered[below]), unless there is no next.",
    ),
    stages=(
        Stage("type", "one value", _percentile_type, raises=(NO_NEXT,)),
        gives(
            "ends",
            "q = 0 is the smallest, q = 100 the largest",
            lambda fn: [float(fn([10, 20, 30], q)) for q in (0, 50, 100)],
            [10.0, 20.0, 30.0],
            "percentiles",
            "These three lie on the places 0, 1 and 2: no value has to be made up.",
            ([30.0, 20.0, 10.0], "Your order is a falling one. q = 0 is the smallest value."),
            (lambda got: got[2] < 30, "q is in per cent, 0 to 100, and the largest value is at "
             "100. Do you take it for a share, or cut the last one off?"),
            atol=1e-9,
            raises=(OUTSIDE,),
        ),
        gives(
            "order",
            "values in any order",
            lambda fn: float(fn([30, 10, 20], 50)),
            20.0,
            "percentile",
            "Half of these values do not exceed 20.",
            (10.0, "You take the middle of the list as it came. Put the values in order first."),
            atol=1e-9,
            raises=(OUTSIDE,),
        ),
        gives(
            "halfway",
            "between two values",
            lambda fn: float(fn([10, 20], 50)),
            15.0,
            "percentile",
            "Place 0.5 is halfway from 10 to 20.",
            (_one_of(10, 20), "You give one of the values. The place lies between two of them, "
             "and so does the result."),
            atol=1e-9,
            raises=(OUTSIDE,),
        ),
        gives(
            "share",
            "the share of the way counts",
            lambda fn: [float(fn([0, 10], 25)), float(fn([10, 20, 30, 40], 90))],
            [2.5, 37.0],
            "percentiles",
            "The places are 0.25 of 0 … 1, and 2.7 of 0 … 3; the way between two values is a "
            "straight line.",
            ([5.0, 35.0], "You give the middle of the two values, wherever between them the place "
             "lies."),
            (lambda got: got[1] in (36, 40), "Your places are off: n values have n - 1 ways "
             "between them, so the place is q / 100 * (n - 1), counted from 0."),
            atol=1e-6,
            raises=(OUTSIDE,),
        ),
        Stage("empty", "no values at all", _percentile_empty),
        gives(
            "whole",
            "the p50, p90 and p99 of ten pauses, one of them long",
            lambda fn: [
                float(fn([40, 38, 41, 300, 39, 40, 42, 40, 37, 43], q)) for q in (50, 90, 99)
            ],
            [40.0, 68.7, 276.87],
            "percentiles",
            "In order: 37 38 39 40 40 40 41 42 43 300. The p90 is at place 8.1, the p99 at 8.91.",
            atol=1e-6,
            raises=(OUTSIDE,),
        ),
    ),
)  # fmt: skip


# timetable: the bug hunt
Caller = tuple[str, int, int | None]


def timetable(callers: Sequence[Caller], slots: int, steps: int) -> list[list[str]]:
    """Play continuous batching: who runs in each of the first steps.

    Each caller is (name, steps that the answer takes, step before which they leave, or None).
    Returns a list of names for each step, in the order in which they were let in.
    """
    left = {name: length for name, length, _ in callers}
    leaves = {name: step for name, _, step in callers}
    waiting, free = list(left), slots
    running: list[str] = []
    table = []
    for step in range(steps):
        gone = [name for name in waiting + running if leaves[name] == step]
        free += sum(name in gone for name in running)
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


STAYING: list[Caller] = [("Anna", 3, None), ("Ben", 1, None), ("Carl", 2, None)]
ONE_LEAVES: list[Caller] = [("Anna", 9, 2), ("Ben", 2, None), ("Carl", 1, None)]
LEAVES_WAITING: list[Caller] = [
    ("Anna", 3, None), ("Ben", 5, 1), ("Carl", 5, 2), ("Dora", 2, None), ("Emil", 2, None)
]  # fmt: skip
MANY_LEAVE: list[Caller] = [
    ("A", 4, 1), ("B", 4, 2), ("C", 4, 3), ("D", 4, 3), ("E", 4, 5), ("F", 4, 6),
    ("G", 2, None), ("H", 2, None),
]  # fmt: skip
AFTER_ITS_END: list[Caller] = [("Anna", 1, 2), ("Ben", 2, None), ("Carl", 2, None)]


def _plays(name: str, about: str, callers: list[Caller], slots: int, hint: str) -> Stage:
    expected = timetable(callers, slots, 8)
    known: list[Diagnosis] = [
        (
            lambda got: max(map(len, got)) > slots,
            "In some step more answers run than there are slots: a slot was given back by "
            "somebody who had none.",
        ),
        (
            lambda got: _overtakes(got, [name for name, _, _ in callers]),
            "Somebody overtakes: callers come in in the order in which they asked.",
        ),
        (
            lambda got: any(
                caller in row for caller, _, leaves in callers if leaves for row in got[leaves:]
            ),
            "Somebody who has left is still running. That is work for nobody.",
        ),
    ]

    def run(fn: Any) -> None:
        got = fn(callers, slots, 8)
        rows = isinstance(got, list) and all(isinstance(row, list) for row in got)
        words = Words("8 lists of names, one for each step")
        expect(rows and len(got) == 8, "Return one list of names a step.", expected=words, got=got)
        equal(got, expected, "who runs in each step", hint, known)

    return Stage(name, about, run)


def _overtakes(table: list[list[str]], line: list[str]) -> bool:
    """Tell whether callers came in in another order than that in which they asked."""
    seen = list(dict.fromkeys(name for row in table for name in row))
    return seen != sorted(seen, key=line.index)


TIMETABLE = Task(
    name="timetable",
    lesson=9,
    minutes=10,
    difficulty="medium",
    statement="Mend a server that stands still after a while.",
    solution=timetable,
    hunt=True,
    hints=(
        "Print `free` at the beginning of each step, beside slots - len(running). When do the two "
        "part?",
        "A slot is taken in one place: when somebody is let in. In how many ways can somebody stop "
        "running, and is the slot given back in each of them? Who leaves the line had none.",
        "Where those who are gone are taken out of `running`, add to `free` how many of them were "
        "running: free += sum(name in gone for name in running), before they are taken out.",
    ),
    stages=(
        _plays("staying", "nobody leaves", STAYING, 2, "Without leavers it was right before."),
        _plays(
            "leaving",
            "Anna leaves in mid-answer, and there is one slot",
            ONE_LEAVES,
            1,
            "Anna leaves before step 2. From then on the slot is free, and Ben has it in step 2 "
            "already. Who gives a slot back, and when?",
        ),
        _plays(
            "waiting",
            "two leave while they are waiting",
            LEAVES_WAITING,
            1,
            "Ben and Carl leave the line and never had a slot, so nothing changes for the others.",
        ),
        _plays(
            "done before",
            "somebody is done before the step in which they would leave",
            AFTER_ITS_END,
            1,
            "Anna is done after one step and gives her slot back once. That she would leave later "
            "changes nothing.",
        ),
        _plays(
            "whole",
            "six leave, two of them at once, and there are two slots",
            MANY_LEAVE,
            2,
            "Before step 3 two leave at once, and both give their slot back. As long as somebody "
            "is waiting, both slots are in use.",
        ),
    ),
)

TASKS = (STATIC_STEPS, CONTINUOUS_STEPS, ADMIT, PERCENTILE, TIMETABLE)
