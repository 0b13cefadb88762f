"""Strings: filters over characters, joining, padding, shifting letters, run-length coding, words by length."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, add, constants, each, keep_if, shuffled, template

# plural word, test, complement
_KINDS = (
    ("vowels", '{x} in "aeiou"', '{x} not in "aeiou"'),
    ("consonants", '{x} in "bcdfgh"', '{x} not in "bcdfgh"'),
    ("digits", "{x}.isdigit()", "not {x}.isdigit()"),
    ("letters", "{x}.isalpha()", "not {x}.isalpha()"),
    ("spaces", '{x} == " "', '{x} != " "'),
    ("capitals", "{x}.isupper()", "not {x}.isupper()"),
    ("dashes", '{x} == "-"', '{x} != "-"'),
)
_ALPHABET = "aebcdABE 19-"


def _letter(rng: random.Random) -> str:
    return rng.choice(("letter", "char", "c"))


def _some_text(r: random.Random) -> tuple[str]:
    return (draws.word(r, _ALPHABET, 9),)


@template("strings")
def letters_where(rng: random.Random) -> Draft:
    """``count_of_vowels_in_text``, ``text_without_digits``, ``all_letters``..."""
    text, c = words.text(rng), _letter(rng)
    kind, test, anti = rng.choice(_KINDS)
    what = rng.choice(("count", "list", "without", "only", "all", "any", "first_index", "last_index"))
    holds, fails = test.format(x=c), anti.format(x=c)
    out, count = words.out(rng), words.count(rng)
    if what == "count":
        loop = each(
            rng, text, c, lambda x: keep_if(rng, test.format(x=x), anti.format(x=x), [add(rng, count, "+", "1")])
        )
        body = [f"{count} = 0", *loop, f"return {count}"]
        name, issue = f"count_of_{kind}_in_{text}", f"Return the number of {kind} in the {text}."
    elif what == "list":
        loop = [f"for {c} in {text}:", keep_if(rng, holds, fails, [f"{out}.append({c})"])]
        body = [f"{out} = []", *loop, f"return {out}"]
        name, issue = f"list_of_{kind}_in_{text}", f"Return the list of the {kind} in the {text}, in order."
    elif what in ("without", "only"):
        good, bad = (fails, holds) if what == "without" else (holds, fails)
        body = [f'{out} = ""', f"for {c} in {text}:", keep_if(rng, good, bad, [add(rng, out, "+", c)]), f"return {out}"]
        name = f"{text}_without_{kind}" if what == "without" else f"only_{kind}_of_{text}"
        issue = (
            f"Return the {text} without its {kind}." if what == "without" else f"Return only the {kind} of the {text}."
        )
    elif what == "all":
        body = [f"for {c} in {text}:", [f"if {fails}:", ["return False"]], "return True"]
        name, issue = f"{text}_is_all_{kind}", f"Return whether the {text} has only {kind}."
    elif what == "any":
        body = [f"for {c} in {text}:", [f"if {holds}:", ["return True"]], "return False"]
        name, issue = f"{text}_has_any_{kind}", f"Return whether the {text} has any {kind}."
    elif what == "first_index":
        body = [f"for i in range(len({text})):", [f"if {test.format(x=f'{text}[i]')}:", ["return i"]], "return -1"]
        name, issue = f"first_index_of_{kind}_in_{text}", f"Return the first index of the {kind} in the {text}, or -1."
    else:
        loop = [f"for i in range(len({text})):", [f"if {test.format(x=f'{text}[i]')}:", ["result = i"]]]
        body = ["result = -1", *loop, "return result"]
        name, issue = f"last_index_of_{kind}_in_{text}", f"Return the last index of the {kind} in the {text}, or -1."
    return Draft(name, text, body, issue, _some_text)


@template("strings")
def words_by_length(rng: random.Random) -> Draft:
    """``count_of_words_longer_than_3``."""
    plural, item = words.strings(rng)
    k = rng.randint(1, 5)
    spoken, test, anti = rng.choice(
        (
            ("longer_than", ">", "<="),
            ("shorter_than", "<", ">="),
            ("of_length", "==", "!="),
            ("of_length_at_least", ">=", "<"),
            ("of_length_at_most", "<=", ">"),
        )
    )
    k += spoken == "shorter_than"
    what = rng.choice(("count", "list", "total_length", "initials"))
    out = {"count": words.count, "total_length": words.total}.get(what, words.out)(rng)
    first, step = {
        "count": ("0", f"{out} += 1"),
        "list": ("[]", f"{out}.append({item})"),
        "total_length": ("0", f"{out} += len({item})"),
        "initials": ('""', f"{out} += {item}[0]"),
    }[what]
    if what == "initials" and spoken in ("shorter_than", "of_length_at_most"):
        spoken, test, anti = "longer_than", ">", "<="
    body = [
        f"{out} = {first}",
        f"for {item} in {plural}:",
        keep_if(rng, f"len({item}) {test} {k}", f"len({item}) {anti} {k}", [step]),
        f"return {out}",
    ]
    issue = f"Return the {what.replace('_', ' ')} of the {plural} {spoken.replace('_', ' ')} {k}."
    return Draft(f"{what}_of_{plural}_{spoken}_{k}", plural, body, issue, draws.one(draws.words))


@template("strings")
def padded(rng: random.Random) -> Draft:
    """``pad_text_left_with_dots_to_6``."""
    text, k = words.text(rng), rng.randint(3, 7)
    side = rng.choice(("left", "right"))
    fill, spoken = rng.choice(((".", "dots"), ("-", "dashes"), ("0", "zeros"), (" ", "spaces")))
    grow = f'{text} = "{fill}" + {text}' if side == "left" else f'{text} = {text} + "{fill}"'
    style = rng.choice(("while", "times", "cut"))
    lifted = constants(rng, width=k)
    width = lifted.text["width"]
    if style == "while":
        body = [f"while len({text}) < {width}:", [grow], f"return {text}"]
    elif style == "times":
        join = f'"{fill}" * missing + {text}' if side == "left" else f'{text} + "{fill}" * missing'
        body = [f"missing = {width} - len({text})", f"return {join}"]
    else:
        keep = f"{text}[-{width}:]" if side == "left" else f"{text}[:{width}]"
        body = [f"while len({text}) < {width}:", [grow], f"return {keep}"]
    cut = f"_and_keep_{'last' if side == 'left' else 'first'}_{k}" if style == "cut" else ""
    issue = f"Pad the {text} on the {side} with {spoken} to length {k}{lifted.issue}"
    issue += f", and keep only the {'last' if side == 'left' else 'first'} {k} characters." if cut else "."

    def args(r: random.Random) -> tuple:
        return draws.word(r, "abc", 9), *lifted.args(r)

    return Draft(f"pad_{text}_{side}_with_{spoken}_to_{k}{cut}", text + lifted.params, body, issue, args)


@template("strings")
def joined(rng: random.Random) -> Draft:
    """``join_words_with_dash``."""
    plural, item = words.strings(rng)
    mark, spoken = rng.choice((("-", "dash"), (",", "comma"), (" ", "space"), ("+", "plus"), ("/", "slash")))
    out = words.out(rng)
    style = rng.choice(("between", "after", "before", "skip_empty", "numbered"))
    if style == "between":
        test = ["if i > 0:", [f'{out} += "{mark}"'], f"{out} += {plural}[i]"]
        loop = [f"for i in range(len({plural})):", test]
        name, meaning = f"join_{plural}_with_{spoken}_between", f"with a {spoken} between them"
    elif style == "after":
        loop = [f"for {item} in {plural}:", [f'{out} = {out} + {item} + "{mark}"']]
        name, meaning = f"join_{plural}_with_{spoken}_after_each", f"with a {spoken} after each"
    elif style == "before":
        loop = [f"for {item} in {plural}:", [f'{out} = {out} + "{mark}" + {item}']]
        name, meaning = f"join_{plural}_with_{spoken}_before_each", f"with a {spoken} before each"
    elif style == "skip_empty":
        test = [f'if {item} == "":', ["continue"], f"if {out}:", [f'{out} += "{mark}"'], f"{out} += {item}"]
        loop = [f"for {item} in {plural}:", test]
        name, meaning = (
            f"join_nonempty_{plural}_with_{spoken}_between",
            f"empty ones left out, with a {spoken} between them",
        )
    else:
        base = rng.randint(0, 2)
        loop = [f"for i, {item} in enumerate({plural}, {base}):", [f'{out} += str(i) + "{mark}" + {item}']]
        name = f"join_{plural}_numbered_from_{base}_with_{spoken}"
        meaning = f"each after its number, counted from {base}, and a {spoken}"
    issue = f"Join the {plural} into one string, {meaning}."
    return Draft(name, plural, [f'{out} = ""', *loop, f"return {out}"], issue, draws.one(draws.words))


@template("strings")
def shifted_letters(rng: random.Random) -> Draft:
    """``shift_letters_of_text_forward_by_3``, within a to z."""
    text, c, k = words.text(rng), _letter(rng), rng.randint(1, 9)
    way, sign = rng.choice((("forward", "+"), ("backward", "-")))
    out, lifted = words.out(rng), constants(rng, steps=k)
    loop = [
        f"for {c} in {text}:",
        [
            f'place = ord({c}) - ord("a")',
            f"place = (place {sign} {lifted.text['steps']}) % 26",
            f'{out} += chr(place + ord("a"))',
        ],
    ]
    issue = f"Shift each letter of the {text} {way} by {k}{lifted.issue} in the alphabet, with a after z."
    name = f"shift_letters_of_{text}_{way}_by_{k}"

    def args(r: random.Random) -> tuple:
        return draws.word(r, "abcxyzm", 6), *lifted.args(r)

    return Draft(name, text + lifted.params, [f'{out} = ""', *loop, f"return {out}"], issue, args)


@template("strings")
def run_lengths(rng: random.Random) -> Draft:
    """``run_lengths_of_text``, ``text_with_runs_cut_to_2``."""
    of_text = rng.random() < 0.6
    name = words.text(rng) if of_text else words.noun(rng)[0]
    k, out = rng.randint(1, 3), words.out(rng)
    run = rng.choice(("run", "count"))
    cut = of_text and rng.random() < 0.7
    same = f"if i > 0 and {name}[i] == {name}[i - 1]:"
    if cut:
        steps = [same, [f"{run} += 1"], "else:", [f"{run} = 1"], f"if {run} <= {k}:", [f"{out} += {name}[i]"]]
        body = [*shuffled(rng, [f'{out} = ""', f"{run} = 0"]), f"for i in range(len({name})):", steps, f"return {out}"]
        title, issue = f"{name}_with_runs_cut_to_{k}", f"Return the {name} with each run of equal letters cut to {k}."
    else:
        steps = [same, [f"{out}[-1] += 1"], "else:", [f"{out}.append(1)"]]
        body = [f"{out} = []", f"for i in range(len({name})):", steps, f"return {out}"]
        title, issue = (
            f"list_of_run_lengths_of_{name}",
            f"Return the lengths of the runs of equal elements of the {name}.",
        )

    def args(r: random.Random):
        drawn = draws.word(r, "aab", 9) if of_text else draws.integers(r, (2,), 2, 3, longest=8)
        return (drawn,)

    return Draft(title, name, body, issue, args)


@template("strings")
def every_kth_letter(rng: random.Random) -> Draft:
    """``upper_every_second_letter_of_text_from_index_1``."""
    text, k, start = words.text(rng), rng.choice((2, 3)), rng.randint(0, 1)
    what, change = rng.choice((("upper", "{x}.upper()"), ("double", "{x} * 2"), ("star", '"*"'), ("keep", "{x}")))
    out, x = words.out(rng), f"{text}[i]"
    test = f"if i % {k} == {start}:"
    other = [] if what == "keep" else ["else:", [f"{out} += {x}"]]
    body = [
        f'{out} = ""',
        f"for i in range(len({text})):",
        [test, [f"{out} += {change.format(x=x)}"], *other],
        f"return {out}",
    ]
    ordinal = words.ORDINALS[k]
    verb = {"upper": "in upper case", "double": "doubled", "star": "replaced by a star", "keep": "kept alone"}[what]
    issue = f"Return the {text} with every {ordinal} letter, from index {start} on, {verb}."
    args = draws.one(lambda r: draws.word(r, "abc", 8))
    return Draft(f"{what}_every_{ordinal}_letter_of_{text}_from_index_{start}", text, body, issue, args)


@template("strings")
def replaced(rng: random.Random) -> Draft:
    """``replace_a_by_b_in_text``: swapped arguments show."""
    text = words.text(rng)
    old, new = rng.sample(("a", "b", "c", "x"), 2)
    side = rng.choice(("all", "first", "except_first"))
    body = [f'return {text}.replace("{old}", "{new}")']
    if side == "first":
        body = [f'at = {text}.find("{old}")', "if at < 0:", [f"return {text}"],
                f'return {text}[:at] + "{new}" + {text}[at + 1:]']  # fmt: skip
    elif side == "except_first":
        body = [f'at = {text}.find("{old}") + 1', f'rest = {text}[at:].replace("{old}", "{new}")',
                f"return {text}[:at] + rest"]  # fmt: skip
    name = f"replace_{side}_{old}_by_{new}_in_{text}"
    if side == "all":
        strip = rng.choice(("strip", "lower"))
        body = [f"{text} = {text}.{strip}()", *body]
        name = f"{strip}_{text}_and_replace_{old}_by_{new}"
    issue = {
        "all": f"{name.split('_')[0].capitalize()} the {text}, then replace each {old} by {new}.",
        "first": f"Replace the first {old} by {new} in the {text}, if there is one.",
        "except_first": f"Replace each {old} but the first by {new} in the {text}.",
    }[side]
    args = draws.one(lambda r: draws.word(r, f"{old}{new}{old}m {old.upper()}" if side == "all" else f"{old}{new}m", 7))
    return Draft(name, text, body, issue, args)
