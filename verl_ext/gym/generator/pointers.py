"""Two pointers and slices: palindromes, pairs in sorted lists, merging, reversing, rotating, removing duplicates."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, add, shuffled, template
from verl_ext.gym.generator.predicates import comparison


def _ends(rng: random.Random) -> tuple[str, str]:
    return rng.choice((("left", "right"), ("i", "j"), ("low", "high")))


@template("strings")
def mirrored(rng: random.Random) -> Draft:
    """``is_palindrome_text``, ``count_of_mismatches_with_reverse_of_text``."""
    of_text = rng.random() < 0.5
    name = words.text(rng) if of_text else words.noun(rng)[0]
    left, right = _ends(rng)
    step = shuffled(rng, [add(rng, left, "+", "1"), add(rng, right, "-", "1")])
    head = [*shuffled(rng, [f"{left} = 0", f"{right} = len({name}) - 1"]), f"while {left} < {right}:"]
    kind = rng.choice(("is_palindrome", "count_of_mirror_matches_in", "count_of_mirror_mismatches_in"))
    if kind == "is_palindrome":
        body = [*head, [f"if {name}[{left}] != {name}[{right}]:", ["return False"], *step], "return True"]
        issue = f"Return whether the {name} reads the same from both ends."
    else:
        count, operator = words.count(rng), "==" if kind == "count_of_mirror_matches_in" else "!="
        test = [f"if {name}[{left}] {operator} {name}[{right}]:", [f"{count} += 1"]]
        body = [f"{count} = 0", *head, [*test, *step], f"return {count}"]
        word = "equal" if operator == "==" else "differ"
        issue = f"Return how many pairs at the same distance from both ends of the {name} {word}."

    def args(r: random.Random):
        half = draws.word(r, "ab", 3) if of_text else draws.integers(r, (1,), 0, 2, longest=3)
        middle = half[:1] if r.random() < 0.5 else half[:0]
        drawn = half + middle + half[::-1]
        if drawn and r.random() < 0.5:
            at = r.randrange(len(drawn))
            drawn = drawn[:at] + ("x" if of_text else [7]) + drawn[at + 1 :]
        return (drawn,)

    return Draft(f"{kind}_{name}", name, body, issue, args)


@template("searching")
def sorted_pair(rng: random.Random) -> Draft:
    """``any_pair_of_sorted_values_with_sum_9``, ``count_of_pairs_..``: two pointers from both ends."""
    plural, _ = words.noun(rng)
    left, right = _ends(rng)
    k = rng.randint(3, 12)
    kind = rng.choice(("any", "first_value_of", "indexes_of"))
    hit, end, meaning = {
        "any": ("return True", "return False", "whether there is a pair"),
        "first_value_of": (f"return {plural}[{left}]", "return None", "the smaller value (None without one) of a pair"),
        "indexes_of": (f"return [{left}, {right}]", "return []", "the indexes ([] without one) of a pair"),
    }[kind]
    loop = [
        f"while {left} < {right}:",
        [
            f"total = {plural}[{left}] + {plural}[{right}]",
            f"if total == {k}:",
            [hit],
            f"if total < {k}:",
            [f"{left} += 1"],
            "else:",
            [f"{right} -= 1"],
        ],
    ]
    head = shuffled(rng, [f"{left} = 0", f"{right} = len({plural}) - 1"])
    issue = f"Return {meaning} of the sorted {plural} with sum {k}, the outermost pair first."
    args = draws.one(lambda r: sorted(draws.integers(r, (k // 2, k - 1), -1, k, longest=6)))
    return Draft(f"{kind}_pair_of_sorted_{plural}_with_sum_{k}", plural, [*head, *loop, end], issue, args)


@template("sorting")
def merged(rng: random.Random) -> Draft:
    """``merge_of_rising_first_and_second``, ``count_of_common_in_rising_first_and_second``."""
    a, b = rng.choice((("first", "second"), ("left", "right"), ("old", "new")))
    rising, out = rng.random() < 0.5, words.out(rng)
    order, operator = ("rising", "<") if rising else ("falling", ">")
    kind = rng.choice(("merge_of", "list_of_common_in", "count_of_common_in"))
    if kind == "merge_of":
        steps = [
            f"if {a}[i] {operator}= {b}[j]:",
            [f"{out}.append({a}[i])", "i += 1"],
            "else:",
            [f"{out}.append({b}[j])", "j += 1"],
        ]
        start, end = f"{out} = []", f"return {out} + {a}[i:] + {b}[j:]"
        issue = f"Merge the {order} lists {a} and {b} into one {order} list."
    else:
        start, hit, what = f"{out} = []", f"{out}.append({a}[i])", "the list of"
        if kind == "count_of_common_in":
            out = words.count(rng)
            start, hit, what = f"{out} = 0", f"{out} += 1", "how many"
        steps = [
            f"if {a}[i] == {b}[j]:",
            [hit, "i += 1", "j += 1"],
            f"elif {a}[i] {operator} {b}[j]:",
            ["i += 1"],
            "else:",
            ["j += 1"],
        ]
        end = f"return {out}"
        issue = f"Return {what} elements the {order} lists {a} and {b} have in common, each matched once."
    loop = [f"while i < len({a}) and j < len({b}):", steps]

    def args(r: random.Random) -> tuple[list[int], list[int]]:
        one, two = (draws.integers(r, (2,), 0, 6, longest=4) for _ in range(2))
        return sorted(one, reverse=not rising), sorted(two, reverse=not rising)

    body = [*shuffled(rng, [start, "i = 0", "j = 0"]), *loop, end]
    return Draft(f"{kind}_{order}_{a}_and_{b}", f"{a}, {b}", body, issue, args)


@template("sequences")
def sliced(rng: random.Random) -> Draft:
    """``values_without_first_2``, ``rotate_values_left_by_2``, ``reverse_first_3_of_values``: one slice a line."""
    plural, _ = words.noun(rng)
    k = rng.randint(1, 5)
    head, tail = rng.choice((("head", "tail"), ("first", "rest")))
    kind, first, second, end, meaning = rng.choice(
        (
            ("rotate_{0}_left_by_{1}", "[:{1}]", "[{1}:]", "{t} + {h}", "the {0} rotated to the left by {1}"),
            ("rotate_{0}_right_by_{1}", "[:-{1}]", "[-{1}:]", "{t} + {h}", "the {0} rotated to the right by {1}"),
            ("reverse_first_{1}_of_{0}", "[:{1}]", "[{1}:]", "{h}[::-1] + {t}", "the {0} with the first {1} reversed"),
            ("reverse_last_{1}_of_{0}", "[:-{1}]", "[-{1}:]", "{h} + {t}[::-1]", "the {0} with the last {1} reversed"),
            ("{0}_without_index_{1}", "[:{1}]", "[{2}:]", "{h} + {t}", "the {0} without the one at index {1}"),
            (
                "{0}_without_first_{1}_and_last_{1}",
                "[{1}:]",
                "",
                "{h}[:-{1}]",
                "the {0} without the outer {1}",
            ),
            (
                "first_{1}_then_last_{1}_of_{0}",
                "[:{1}]",
                "[-{1}:]",
                "{h} + {t}",
                "the first {1} and the last {1} {0}",
            ),
            ("double_first_{1}_of_{0}", "[:{1}]", "[{1}:]", "{h} + {h} + {t}", "the {0} with the first {1} repeated"),
        )
    )
    k += k == 1 and kind.startswith("reverse")  # one element reversed is no change
    fill = {"h": head, "t": tail}
    lines = [f"{head} = {plural}{first.format(plural, k, k + 1)}"]
    if second:
        lines.append(f"{tail} = {plural}{second.format(plural, k, k + 1)}")
        if "-" not in first:
            rng.shuffle(lines)
    body = [*lines, f"return {end.format(plural, k, **fill)}"]
    if rng.random() < 0.4:
        body = [f"if len({plural}) < {k + 1}:", [f"return {plural}[:]"], *body]
        meaning += f", or a copy if there are fewer than {k + 1}"
        kind += "_if_longer"
    issue = f"Return {meaning.format(plural, k)}."
    args = draws.one(lambda r: draws.integers(r, (2,), 0, 9, longest=8))
    return Draft(kind.format(plural, k), plural, body, issue, args)


@template("sequences")
def deduped(rng: random.Random) -> Draft:
    """``distinct_values_in_order``, ``values_without_repeated_neighbours``, ``values_that_repeat``."""
    (plural, item), out = words.noun(rng), words.out(rng)
    seen = rng.choice(("seen", "known"))
    kind = rng.choice(("distinct", "runs", "repeated", "count"))
    if kind == "distinct":
        name, meaning = f"list_of_distinct_{plural}", f"the distinct {plural}, in order of first appearance"
        body = [f"{out} = []", f"for {item} in {plural}:", [f"if {item} not in {out}:", [f"{out}.append({item})"]]]
    elif kind == "runs":
        name, meaning = f"list_of_{plural}_without_repeated_neighbours", f"the {plural} without repeated neighbours"
        test = f"if not {out} or {item} != {out}[-1]:"
        body = [f"{out} = []", f"for {item} in {plural}:", [test, [f"{out}.append({item})"]]]
    elif kind == "repeated":
        name, meaning = f"list_of_{plural}_seen_before", f"each of the {plural} that was seen before"
        test = [f"if {item} in {seen}:", [f"{out}.append({item})"], f"{seen}.append({item})"]
        body = [*shuffled(rng, [f"{out} = []", f"{seen} = []"]), f"for {item} in {plural}:", test]
    else:
        name, meaning = f"count_of_{plural}_seen_before", f"how many of the {plural} were seen before"
        out = words.count(rng)
        test = [f"if {item} in {seen}:", [f"{out} += 1"], "else:", [f"{seen}.append({item})"]]
        body = [*shuffled(rng, [f"{out} = 0", f"{seen} = []"]), f"for {item} in {plural}:", test]
    args = draws.one(lambda r: draws.integers(r, (2,), 0, 4))
    return Draft(name, plural, [*body, f"return {out}"], f"Return {meaning}.", args)


@template("sorting")
def inserted(rng: random.Random) -> Draft:
    """``insert_wanted_into_rising_values``."""
    plural, _ = words.noun(rng)
    new = rng.choice(("new", "extra"))
    order, operator = rng.choice((("rising", "<"), ("falling", ">")))
    side = rng.choice(("before", "after"))
    operator = operator if side == "before" else operator + "="
    loop = [f"while i < len({plural}) and {plural}[i] {operator} {new}:", ["i += 1"]]
    as_index = rng.random() < 0.4
    if as_index:
        end, name = "return i", f"index_to_insert_{new}_into_{order}_{plural}_{side}_equals"
        issue = f"Return the index at which {new} belongs in the {order} {plural}, {side} equal ones."
    else:
        end, name = f"return {plural}[:i] + [{new}] + {plural}[i:]", f"insert_{new}_into_{order}_{plural}"
        issue = f"Return the {order} {plural} with {new} inserted in order."

    def args(r: random.Random) -> tuple[list[int], int]:
        drawn = sorted(draws.integers(r, (2, 5), 0, 7), reverse=order == "falling")
        return drawn, r.choice((*drawn, -1, 3, 9))

    return Draft(name, f"{plural}, {new}", ["i = 0", *loop, end], issue, args)


@template("sequences")
def leading(rng: random.Random) -> Draft:
    """``count_of_leading_values_above_3``, ``list_without_leading_..``: a loop that stops at the first failure."""
    (plural, _), p = words.noun(rng), comparison(rng)
    end = rng.choice(("leading", "trailing"))
    kind = rng.choice(("count_of", "list_of", "list_without"))
    if end == "leading":
        body = ["i = 0", f"while i < len({plural}) and {p.holds(f'{plural}[i]')}:", ["i += 1"]]
        tail = {"count_of": "i", "list_of": f"{plural}[:i]", "list_without": f"{plural}[i:]"}[kind]
    else:
        body = [f"i = len({plural})", f"while i > 0 and {p.holds(f'{plural}[i - 1]')}:", ["i -= 1"]]
        tail = {"count_of": f"len({plural}) - i", "list_of": f"{plural}[i:]", "list_without": f"{plural}[:i]"}[kind]
    what = {"count_of": "the number of", "list_of": "the", "list_without": f"the {plural} without the"}[kind]
    issue = f"Return {what} {end} {p.words(plural)}."
    args = draws.one(lambda r: draws.integers(r, p.edges))
    return Draft(f"{kind}_{end}_{p.name(plural)}", plural, [*body, f"return {tail}"], issue, args)
