"""Simple state: balances, brackets, toggles, positions that move, stacks."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, shuffled, template


@template("state_machines")
def balance(rng: random.Random) -> Draft:
    """``balance_after_changes_refusing_below_0``."""
    changes, item = rng.choice((("changes", "change"), ("moves", "move"), ("steps", "step"), ("payments", "payment")))
    start, state = rng.randint(0, 5), rng.choice(("balance", "level", "stock"))
    k = rng.randint(0, 3)
    top = start + rng.randint(4, 8)
    what = rng.choice(("final", "count_of_refused", "largest", "smallest", "index"))
    spoken, operator, bound = rng.choice((("below", "<", k), ("above", ">", top)))
    name = f"{state}_from_{start}"
    if what in ("final", "count_of_refused"):
        refused = f"if {state} + {item} {operator} {bound}:"
        if what == "final":
            lines, steps, end = [f"{state} = {start}"], [refused, ["continue"], f"{state} += {item}"], state
        else:
            count = rng.choice(("count", "refused"))
            lines = shuffled(rng, [f"{state} = {start}", f"{count} = 0"])
            steps, end = [refused, [f"{count} += 1"], "else:", [f"{state} += {item}"]], count
        name = f"{what}_{name}_after_{changes}_refused_if_{spoken}_{bound}"
        asked = f"final {state}" if what == "final" else f"number of refused {changes}"
        issue = f"Return the {asked}; the {state} starts at {start}, and what leads {spoken} {bound} is refused."
    elif what == "index":
        lines, end = [f"{state} = {start}"], "-1"
        steps = [f"{state} += {changes}[i]", f"if {state} {operator} {bound}:", ["return i"]]
        name = f"first_index_with_{name}_{spoken}_{bound}_after_{changes}"
        issue = (
            f"Return the first index of {changes} after which the {state}, from {start} on, is {spoken} {bound}, or -1."
        )
    else:
        better = ">" if what == "largest" else "<"
        lines = shuffled(rng, [f"{state} = {start}", f"best = {start}"])
        steps = [f"{state} += {item}", f"if {state} {better} best:", [f"best = {state}"]]
        end, name = "best", f"{what}_{name}_over_{changes}"
        issue = f"Return the {what} {state} reached over the {changes}, from {start} on."
    head = f"for i in range(len({changes})):" if what == "index" else f"for {item} in {changes}:"
    args = draws.one(lambda r: draws.integers(r, (bound - start, k - start), -5, 6))
    return Draft(name, changes, [*lines, head, steps, f"return {end}"], issue, args)


@template("parsing")
def brackets(rng: random.Random) -> Draft:
    """``largest_depth_of_round_brackets_in_text``, ``round_brackets_in_text_are_balanced``."""
    text, c = words.text(rng), rng.choice(("c", "char", "letter"))
    depth = rng.choice(("depth", "level"))
    shape, opening, closing = rng.choice(
        (("round", "(", ")"), ("square", "[", "]"), ("angle", "<", ">"), ("curly", "{", "}"))
    )
    what = rng.choice(("balanced", "largest_depth", "outside", "inside", "final_depth", "unmatched"))
    up, down = [f'if {c} == "{opening}":', [f"{depth} += 1"]], [f'elif {c} == "{closing}":', [f"{depth} -= 1"]]
    lines, loop = [f"{depth} = 0"], f"for {c} in {text}:"
    if what == "balanced":
        steps, end = [*up, *down, f"if {depth} < 0:", ["return False"]], f"{depth} == 0"
        name, issue = (
            f"{shape}_brackets_in_{text}_are_balanced",
            f"whether the {shape} brackets in the {text} are balanced",
        )
    elif what == "largest_depth":
        lines, end = shuffled(rng, [f"{depth} = 0", "best = 0"]), "best"
        steps = [*up, *down, f"best = max(best, {depth})"]
        name, issue = (
            f"largest_depth_of_{shape}_brackets_in_{text}",
            f"the largest depth of {shape} brackets in the {text}",
        )
    elif what == "final_depth":
        steps, end = [*up, *down], depth
        name = f"final_depth_of_{shape}_brackets_in_{text}"
        issue = f"opening minus closing {shape} brackets in the {text}"
    elif what == "unmatched":
        lines, end = shuffled(rng, [f"{depth} = 0", "count = 0"]), "count"
        steps = [
            *up,
            f'elif {c} == "{closing}" and {depth} > 0:',
            [f"{depth} -= 1"],
            f'elif {c} == "{closing}":',
            ["count += 1"],
        ]
        name = f"count_of_unmatched_closing_{shape}_brackets_in_{text}"
        issue = f"how many closing {shape} brackets in the {text} have no opening one"
    else:
        out, test = words.out(rng), "== 0" if what == "outside" else "> 0"
        lines, end = shuffled(rng, [f"{depth} = 0", f'{out} = ""']), out
        steps = [*up, *down, f"elif {depth} {test}:", [f"{out} += {c}"]]
        name = f"letters_{what}_{shape}_brackets_in_{text}"
        issue = f"the letters {what} of {shape} brackets in the {text}, brackets left out"

    def args(r: random.Random) -> tuple[str]:
        drawn = draws.word(r, f"{opening}{closing}{opening}{closing}a", 9)
        if r.random() < 0.4:
            drawn = opening * r.randint(0, 3) + "ab"[: r.randint(0, 2)] + closing * r.randint(0, 3)
        return (drawn,)

    return Draft(name, text, [*lines, loop, steps, f"return {end}"], f"Return {issue}.", args)


@template("state_machines")
def walk(rng: random.Random) -> Draft:
    """``final_position_of_moves_with_l_minus_1_and_r_plus_2``."""
    moves, c = rng.choice((("moves", "move"), ("steps", "step"), ("keys", "key")))
    a, b = rng.choice((("L", "R"), ("D", "U"), ("a", "b"), ("-", "+")))
    spoken = {"-": "dash", "+": "plus"}
    down, up = rng.randint(1, 3), rng.randint(1, 3)
    position = rng.choice(("position", "place"))
    what = rng.choice(("final", "final", "largest", "smallest", "count_of_zero"))
    turn = [f'if {c} == "{a}":', [f"{position} -= {down}"], f'elif {c} == "{b}":', [f"{position} += {up}"]]
    lines, steps, end = [f"{position} = 0"], turn, position
    if what in ("largest", "smallest"):
        call = "max" if what == "largest" else "min"
        lines, end = shuffled(rng, [*lines, "best = 0"]), "best"
        steps = [*turn, f"best = {call}(best, {position})"]
    elif what == "count_of_zero":
        lines, end = shuffled(rng, [*lines, "count = 0"]), "count"
        steps = [*turn, f"if {position} == 0:", ["count += 1"]]
    low, high = spoken.get(a, a.lower()), spoken.get(b, b.lower())
    name = f"{what}_{position}_of_{moves}_{low}_minus_{down}_{high}_plus_{up}"
    meaning = {"count_of_zero": f"how often the {position} is 0 after a {c}"}.get(what, f"the {what} {position}")
    issue = f'Start at 0; of the {moves}, "{a}" means minus {down} and "{b}" plus {up}. Return {meaning}.'
    args = draws.one(lambda r: draws.word(r, a + b + a + b + ".", 8))
    return Draft(name, moves, [*lines, f"for {c} in {moves}:", steps, f"return {end}"], issue, args)


@template("state_machines")
def toggled(rng: random.Random) -> Draft:
    """``sum_of_values_while_on_switched_by_0``: a flag flips at a mark."""
    (plural, item), total, k = words.noun(rng), words.total(rng), rng.randint(0, 9)
    flag, first = rng.choice(("active", "enabled")), rng.choice(("True", "False"))
    what = rng.choice(("sum", "count", "list"))
    target = {"sum": total, "count": words.count(rng), "list": words.out(rng)}[what]
    start, step = {
        "sum": ("0", f"{target} += {item}"),
        "count": ("0", f"{target} += 1"),
        "list": ("[]", f"{target}.append({item})"),
    }[what]
    lines = shuffled(rng, [f"{flag} = {first}", f"{target} = {start}"])
    steps = [f"if {item} == {k}:", [f"{flag} = not {flag}"], f"elif {flag}:", [step]]
    begin = "on" if first == "True" else "off"
    name = f"{what}_of_{plural}_while_{flag}_starting_{begin}_switched_by_{k}"
    issue = f"Return the {what} of the {plural} while {flag}, which each {k} switches on or off; it starts {begin}."
    args = draws.one(lambda r: draws.integers(r, (k,), -2, 9, longest=9))
    return Draft(name, plural, [*lines, f"for {item} in {plural}:", steps, f"return {target}"], issue, args)


@template("parsing")
def fields(rng: random.Random) -> Draft:
    """``sum_of_numbers_in_text_split_by_comma``: parts that are not numbers are skipped or refused."""
    text, part = words.text(rng), rng.choice(("part", "piece"))
    mark, spoken = rng.choice(((",", "comma"), (" ", "space"), (";", "semicolon"), ("-", "dash"), ("/", "slash")))
    what = rng.choice(("sum", "count", "list", "product"))
    target = {"sum": words.total, "count": words.count, "list": words.out}.get(what, lambda _: "product")(rng)
    start, step = {
        "sum": ("0", f"{target} += int({part})"),
        "count": ("0", f"{target} += 1"),
        "list": ("[]", f"{target}.append(int({part}))"),
        "product": ("1", f"{target} *= int({part})"),
    }[what]
    if rng.random() < 0.5:
        steps, tail = [f"if not {part}.isdigit():", ["continue"], step], "skipping_others"
        meaning = "skip other parts"
    else:
        steps, tail = [f"if not {part}.isdigit():", [f"raise ValueError({part})"], step], "refusing_others"
        meaning = "raise ValueError at any other part"
    body = [f"{target} = {start}", f'for {part} in {text}.split("{mark}"):', steps, f"return {target}"]
    issue = f"Return the {what} of the numbers in the {text}, whose parts are split by a {spoken}; {meaning}."

    def args(r: random.Random) -> tuple[str]:
        odd = 0.25 if tail == "skipping_others" else 0.08
        parts = [
            r.choice(("x", "", "2a")) if r.random() < odd else str(r.randint(0, 12)) for _ in range(r.randint(1, 5))
        ]
        return (mark.join(parts),)

    return Draft(f"{what}_of_numbers_in_{text}_split_by_{spoken}_{tail}", text, body, issue, args)
