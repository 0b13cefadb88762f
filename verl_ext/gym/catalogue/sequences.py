"""Lists: windows, runs, partitions, running totals."""

from verl_ext.gym.program import Program, function, ints, several


def _function(name, issue, args, source) -> Program:
    return function(name, "sequences", issue, args, source)


def _list(r):
    return (ints(r),)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "chunk_list",
        "Split items into consecutive chunks of the given size; the last may be shorter. A size below 1 is a "
        "ValueError.",
        lambda r: (ints(r), r.choice((0, 1, 2, 2, 3, 3, 4, 7))),
        '''
def chunk_list(items, size):
    """Split items into consecutive chunks of the given size."""
    if size < 1:
        raise ValueError("size must be positive")
    chunks = []
    for start in range(0, len(items), size):
        chunks.append(items[start:start + size])
    return chunks
''',
    ),
    _function(
        "running_totals",
        "Return for each position the sum of all values up to and including it.",
        _list,
        """
def running_totals(values):
    totals = []
    total = 0
    for value in values:
        total += value
        totals.append(total)
    return totals
""",
    ),
    _function(
        "moving_maximum",
        "Return the maximum of each window of width consecutive values. There is none when values are fewer than "
        "width.",
        lambda r: (ints(r, most=8), r.randint(1, 4)),
        """
def moving_maximum(values, width):
    result = []
    for start in range(len(values) - width + 1):
        best = values[start]
        for value in values[start + 1:start + width]:
            if value > best:
                best = value
        result.append(best)
    return result
""",
    ),
    _function(
        "rotate_left",
        "Rotate a list to the left by the given number of places; negative numbers rotate to the right.",
        lambda r: (ints(r, 0, 9), r.randint(-8, 9)),
        """
def rotate_left(items, places):
    if not items:
        return []
    cut = places % len(items)
    return items[cut:] + items[:cut]
""",
    ),
    _function(
        "remove_adjacent_duplicates",
        "Keep only the first of each run of equal neighbours.",
        lambda r: (ints(r, 0, 2, 8),),
        """
def remove_adjacent_duplicates(items):
    result = []
    for item in items:
        if not result or item != result[-1]:
            result.append(item)
    return result
""",
    ),
    _function(
        "longest_increasing_run",
        "Return the length of the longest run of neighbours in which each value is greater than the one before.",
        lambda r: (ints(r, 0, 5, 8),),
        '''
def longest_increasing_run(values):
    """Return the length of the longest strictly increasing run."""
    if not values:
        return 0
    best = 1
    length = 1
    for index in range(1, len(values)):
        if values[index] > values[index - 1]:
            length += 1
        else:
            length = 1
        best = max(best, length)
    return best
''',
    ),
    _function(
        "maximum_subarray_sum",
        "Return the largest sum of one or more consecutive values. An empty list is a ValueError.",
        lambda r: (ints(r, -6, 6, 8),),
        """
def maximum_subarray_sum(values):
    if not values:
        raise ValueError("no values")
    best = values[0]
    current = values[0]
    for value in values[1:]:
        if current > 0:
            current = current + value
        else:
            current = value
        if current > best:
            best = current
    return best
""",
    ),
    _function(
        "pairwise_differences",
        "Return the difference of each value to the one before it.",
        _list,
        """
def pairwise_differences(values):
    result = []
    for index in range(1, len(values)):
        result.append(values[index] - values[index - 1])
    return result
""",
    ),
    _function(
        "interleave_lists",
        "Take items in turn from first and second, starting with first; what remains of the longer list follows.",
        lambda r: (ints(r, 0, 4, 4), ints(r, 5, 9, 4)),
        '''
def interleave_lists(first, second):
    """Take items in turn from both lists."""
    shared = min(len(first), len(second))
    result = []
    for index in range(shared):
        result.append(first[index])
        result.append(second[index])
    result += first[shared:]
    result += second[shared:]
    return result
''',
    ),
    _function(
        "partition_by_pivot",
        "Split values into three lists, those below, equal to and above the pivot, and keep their order.",
        lambda r: (ints(r, 0, 5, 8), r.randint(0, 5)),
        """
def partition_by_pivot(values, pivot):
    below = []
    equal = []
    above = []
    for value in values:
        if value < pivot:
            below.append(value)
        elif value == pivot:
            equal.append(value)
        else:
            above.append(value)
    return below, equal, above
""",
    ),
    _function(
        "count_sign_changes",
        "Count how often the sign changes from one value to the next; zeros are skipped.",
        lambda r: (ints(r, -2, 2, 8),),
        """
def count_sign_changes(values):
    changes = 0
    last = 0
    for value in values:
        if value == 0:
            continue
        if last != 0 and (value > 0) != (last > 0):
            changes += 1
        last = value
    return changes
""",
    ),
    _function(
        "second_largest",
        "Return the second largest of the distinct values, or None when there are fewer than two.",
        lambda r: (ints(r, -4, 4, 6),),
        '''
def second_largest(values):
    """Return the second largest of the distinct values."""
    largest = None
    second = None
    for value in values:
        if largest is None or value > largest:
            second = largest
            largest = value
        elif value != largest and (second is None or value > second):
            second = value
    return second
''',
    ),
    _function(
        "flatten_nested",
        "Flatten a list of numbers and lists, nested to any depth, into one list in the same order.",
        lambda r: (several(r, lambda r: r.choice((r.randint(0, 9), ints(r, 0, 9, 3), [ints(r, 0, 9, 2), 7])), 5),),
        """
def flatten_nested(items):
    result = []
    for item in items:
        if isinstance(item, list):
            result.extend(flatten_nested(item))
        else:
            result.append(item)
    return result
""",
    ),
    _function(
        "trapped_water",
        "Bars of the given heights stand side by side. Return how much water stays between them after rain.",
        lambda r: (ints(r, 0, 4, 8),),
        '''
def trapped_water(heights):
    """Return how much water stays between the bars."""
    water = 0
    for index, height in enumerate(heights):
        left = max(heights[:index + 1])
        right = max(heights[index:])
        water += min(left, right) - height
    return water
''',
    ),
)
