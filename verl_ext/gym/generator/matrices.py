"""Nested loops over matrices: filters over all cells, rows, columns, diagonals, transposes."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Block, Draft, add, template
from verl_ext.gym.generator.predicates import comparison, predicate

_NAMES = ("matrix", "grid", "table")


def _fold(rng: random.Random) -> tuple[str, str, str, str]:
    """What it is called, the accumulator, its start, and the step with ``{x}``."""
    what = rng.choice(("sum", "count"))
    target = words.total(rng) if what == "sum" else words.count(rng)
    return what, target, "0", add(rng, target, "+", "{x}" if what == "sum" else "1")


@template("matrices")
def cells_where(rng: random.Random) -> Draft:
    """``sum_of_even_cells_of_grid``."""
    grid, p = rng.choice(_NAMES), predicate(rng)
    what, target, first, step = _fold(rng)
    if rng.random() < 0.5:
        loop = [f"for row in {grid}:", ["for cell in row:", [f"if {p.holds('cell')}:", [step.format(x="cell")]]]]
    else:
        cell = f"{grid}[i][j]"
        inner: Block = [f"if {p.holds(cell)}:", [step.format(x=cell)]]
        loop = [f"for i in range(len({grid})):", [f"for j in range(len({grid}[i])):", inner]]
    issue = f"Return the {what} of the {p.words('cells')} of the {grid}."
    args = draws.one(lambda r: draws.matrix(r, p.edges))
    name = f"{what}_of_{p.name('cells')}_of_{grid}"
    return Draft(name, grid, [f"{target} = {first}", *loop, f"return {target}"], issue, args)


_REGIONS = {
    "diagonal": ("i == j", "on the main diagonal"),
    "off_diagonal": ("i != j", "off the main diagonal"),
    "above_diagonal": ("i < j", "above the main diagonal"),
    "below_diagonal": ("i > j", "below the main diagonal"),
    "not_below_diagonal": ("i <= j", "on or above the main diagonal"),
    "even_row": ("i % 2 == 0", "in the rows of even index"),
    "odd_column": ("j % 2 == 1", "in the columns of odd index"),
    "border": ("i == 0 or j == 0", "in the first row or first column"),
    "inner": ("i > 0 and j > 0", "in neither the first row nor the first column"),
}


@template("matrices")
def region(rng: random.Random) -> Draft:
    """``sum_of_above_diagonal_cells_of_grid``."""
    grid, kind = rng.choice(_NAMES), rng.choice(tuple(_REGIONS))
    test, meaning = _REGIONS[kind]
    what, target, first, step = rng.choice(
        (
            ("sum", words.total(rng), "0", "{t} += {x}"),
            ("product", "product", "1", "{t} *= {x}"),
            ("list", words.out(rng), "[]", "{t}.append({x})"),
        )
    )
    step = step.format(t=target, x=f"{grid}[i][j]")
    loop = [f"for i in range(len({grid})):", [f"for j in range(len({grid}[i])):", [f"if {test}:", [step]]]]
    issue = f"Return the {what} of the cells {meaning} of the {grid}."
    args = draws.one(lambda r: draws.matrix(r, (2,), square="diagonal" in kind))
    name = f"{what}_of_{kind}_cells_of_{grid}"
    return Draft(name, grid, [f"{target} = {first}", *loop, f"return {target}"], issue, args)


@template("matrices")
def one_line_of_cells(rng: random.Random) -> Draft:
    """``sum_of_diagonal_of_grid``, ``list_of_column_2_of_grid``: a single loop over a line of cells."""
    grid, k = rng.choice(_NAMES), rng.randint(0, 2)
    kind, head, cell = rng.choice(
        (
            ("diagonal", "for i in range(len({g})):", "{g}[i][i]"),
            ("anti_diagonal", "for i in range(len({g})):", "{g}[i][len({g}) - 1 - i]"),
            (f"column_{k}", "for i in range(len({g})):", f"{{g}}[i][{k}]"),
            ("last_column", "for i in range(len({g})):", "{g}[i][-1]"),
            ("last_row", "for j in range(len({g})):", "{g}[-1][j]"),
            ("second_diagonal", "for i in range(len({g}) - 1):", "{g}[i][i + 1]"),
        )
    )
    head, cell = head.format(g=grid), cell.format(g=grid)
    what = rng.choice(("sum", "list", "product", "largest"))
    target = {"sum": words.total, "list": words.out, "largest": words.best}.get(what, lambda _: "product")(rng)
    first, step = {
        "sum": ("0", [f"{target} += {cell}"]),
        "product": ("1", [f"{target} *= {cell}"]),
        "list": ("[]", [f"{target}.append({cell})"]),
        "largest": ("None", [f"if {target} is None or {cell} > {target}:", [f"{target} = {cell}"]]),
    }[what]
    issue = f"Return the {what} of the {kind.replace('_', ' ')} of the square {grid}."
    args = draws.one(lambda r: [[draws.integer(r) for _ in range(n)] for n in [r.randint(k + 1, 4)] for _ in range(n)])
    name = f"{what}_of_{kind}_of_{grid}"
    return Draft(name, grid, [f"{target} = {first}", head, step, f"return {target}"], issue, args)


@template("matrices")
def by_row(rng: random.Random) -> Draft:
    """``list_of_row_sums_of_grid``, ``count_of_rows_of_grid_with_sum_above_3``, ``index_of_..``."""
    grid, p = rng.choice(_NAMES), comparison(rng)
    kind, code = rng.choice(
        (
            ("sum", "sum(row)"),
            ("maximum", "max(row)"),
            ("minimum", "min(row)"),
            ("first cell", "row[0]"),
            ("last cell", "row[-1]"),
        )
    )
    what = rng.choice(("count", "list", "first_index", "largest_index"))
    if what == "count":
        count = words.count(rng)
        body = [f"{count} = 0", f"for row in {grid}:", [f"if {p.holds(code)}:", [f"{count} += 1"]], f"return {count}"]
        name, issue = f"count_of_rows_of_{grid}_with_{p.name(kind)}", "how many rows of the {g} have {p}."
    elif what == "list":
        out = words.out(rng)
        body = [f"{out} = []", f"for row in {grid}:", [f"if {p.holds(code)}:", [f"{out}.append(row)"]], f"return {out}"]
        name, issue = f"list_of_rows_of_{grid}_with_{p.name(kind)}", "the rows of the {g} that have {p}."
    elif what == "first_index":
        test = p.holds(code.replace("row", f"{grid}[i]"))
        body = [f"for i in range(len({grid})):", [f"if {test}:", ["return i"]], "return -1"]
        name, issue = (
            f"first_index_of_rows_of_{grid}_with_{p.name(kind)}",
            "the first index of rows of the {g} with {p}, or -1.",
        )
    else:
        tie, operator = rng.choice((("first", ">"), ("last", ">=")))
        here, there = code.replace("row", f"{grid}[i]"), code.replace("row", f"{grid}[best]")
        body = [
            "best = 0",
            f"for i in range(1, len({grid})):",
            [f"if {here} {operator} {there}:", ["best = i"]],
            "return best",
        ]
        name, issue = (
            f"{tie}_index_of_row_of_{grid}_with_largest_{kind.replace(' ', '_')}",
            f"the {tie} index of the row of the {{g}} with the largest {kind}.",
        )
    spoken = f"a {kind} {p.after}"
    return Draft(
        name,
        grid,
        body,
        "Return " + issue.format(g=grid, p=spoken),
        draws.one(lambda r: draws.matrix(r, (2, *p.edges))),
    )


@template("matrices")
def rebuilt(rng: random.Random) -> Draft:
    """``transpose_of_grid``, ``grid_with_rows_reversed``, ``grid_times_3``."""
    grid, k, out = rng.choice(_NAMES), rng.randint(2, 9), words.out(rng)
    kind = rng.choice(("transpose", "row_op", "cell_op", "cell_op", "cell_op"))
    if kind == "transpose":
        base, place = rng.choice((("transpose_of", "{g}[i][j]"), ("list_of_columns_from_last_of", "{g}[i][-1 - j]")))
        inner = [f"{out}.append([])", f"for i in range(len({grid})):", [f"{out}[j].append({place.format(g=grid)})"]]
        body = [f"{out} = []", f"for j in range(len({grid}[0])):", inner, f"return {out}"]
        name = f"{base}_{grid}"
        issue = f"Return the {base.replace('_', ' ')} the {grid}."
    elif kind == "row_op":
        word, code = rng.choice(
            (
                ("each_row_reversed", "row[::-1]"),
                ("each_row_without_first", "row[1:]"),
                ("each_row_without_last", "row[:-1]"),
                ("each_row_rotated_left", "row[1:] + row[:1]"),
                ("each_row_rotated_right", "row[-1:] + row[:-1]"),
            )
        )
        body = [f"{out} = []", f"for row in {grid}:", [f"{out}.append({code})"], f"return {out}"]
        name, issue = f"{grid}_with_{word}", f"Return the {grid} with {word.replace('_', ' ')}."
    else:
        word, code = rng.choice((("times", "*"), ("plus", "+"), ("minus", "-"), ("modulo", "%")))
        inner = ["line = []", "for cell in row:", [f"line.append(cell {code} {k})"], f"{out}.append(line)"]
        body = [f"{out} = []", f"for row in {grid}:", inner, f"return {out}"]
        name, issue = f"{grid}_with_each_cell_{word}_{k}", f"Return the {grid} with each cell {word} {k}."
    return Draft(name, grid, body, issue, draws.one(lambda r: draws.matrix(r, (2, k))))
