"""Finding positions: bisection, two pointers, peaks and pairs."""

from verl_ext.gym.program import Program, function, ints, ordered


def _function(name, issue, args, source) -> Program:
    return function(name, "searching", issue, args, source)


def _ordered_and_target(r):
    return ordered(r, 0, 9, 8), r.randint(-1, 10)


def _ordered_and_sum(r):
    values = ordered(r, 0, 9, 7)
    return values, sum(r.sample(values, 2)) if len(values) > 1 and r.random() < 0.6 else r.randint(0, 18)


def _rotated(r):
    values = sorted(r.sample(range(10), r.randint(0, 7)))
    cut = r.randint(0, 6)
    return (values[cut:] + values[:cut],)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "binary_search",
        "Return the index of target in an ascending list of distinct values, or -1.",
        lambda r: (sorted(r.sample(range(10), r.randint(0, 8))), r.randint(-1, 10)),
        '''
def binary_search(values, target):
    """Return the index of target in an ascending list, or -1."""
    low = 0
    high = len(values) - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == target:
            return middle
        if values[middle] < target:
            low = middle + 1
        else:
            high = middle - 1
    return -1
''',
    ),
    _function(
        "lower_bound",
        "Return the first index of an ascending list at which the value is not below target, or the length of the "
        "list.",
        _ordered_and_target,
        """
def lower_bound(values, target):
    low = 0
    high = len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low
""",
    ),
    _function(
        "count_in_sorted",
        "Count how often target occurs in an ascending list; stop as soon as larger values begin.",
        _ordered_and_target,
        """
def count_in_sorted(values, target):
    count = 0
    for value in values:
        if value > target:
            break
        if value == target:
            count += 1
    return count
""",
    ),
    _function(
        "last_index_of",
        "Return the last index at which target stands in items, or None.",
        lambda r: (ints(r, 0, 3, 5), r.randint(0, 3)),
        """
def last_index_of(items, target):
    index = len(items) - 1
    while index >= 0:
        if items[index] == target:
            return index
        index -= 1
    return None
""",
    ),
    _function(
        "pair_with_sum",
        "Find in an ascending list two positions whose values add up to target: the outermost such pair, as a "
        "tuple, or None.",
        _ordered_and_sum,
        '''
def pair_with_sum(values, target):
    """Find two positions of an ascending list whose values add up to target."""
    left = 0
    right = len(values) - 1
    while left < right:
        total = values[left] + values[right]
        if total == target:
            return left, right
        if total < target:
            left += 1
        else:
            right -= 1
    return None
''',
    ),
    _function(
        "closest_value",
        "Return the value nearest to target; of two equally near the smaller one. An empty list is a ValueError.",
        lambda r: (ints(r, -4, 5, 6), r.randint(-2, 3)),
        """
def closest_value(values, target):
    if not values:
        raise ValueError("no values")
    best = values[0]
    for value in values:
        distance = abs(value - target)
        if distance < abs(best - target):
            best = value
        elif distance == abs(best - target) and value < best:
            best = value
    return best
""",
    ),
    _function(
        "find_peaks",
        "Return the indexes of all inner values that are greater than both neighbours.",
        lambda r: (ints(r, 0, 5, 9),),
        """
def find_peaks(values):
    peaks = []
    for index in range(1, len(values) - 1):
        if values[index - 1] < values[index] and values[index] > values[index + 1]:
            peaks.append(index)
    return peaks
""",
    ),
    _function(
        "find_rotation_point",
        "An ascending list of distinct values was rotated. Return the index of its smallest value, and -1 for an "
        "empty list.",
        _rotated,
        """
def find_rotation_point(values):
    if not values:
        return -1
    low = 0
    high = len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if values[middle] > values[high]:
            low = middle + 1
        else:
            high = middle
    return low
""",
    ),
    _function(
        "find_sublist",
        "Return the first index at which part begins inside items, or -1. An empty part begins at 0.",
        lambda r: (ints(r, 0, 2, 8), ints(r, 0, 2, 3)),
        """
def find_sublist(items, part):
    for start in range(len(items) - len(part) + 1):
        matched = True
        for offset in range(len(part)):
            if items[start + offset] != part[offset]:
                matched = False
                break
        if matched:
            return start
    return -1
""",
    ),
    _function(
        "majority_item",
        "Return the item that makes up more than half of the list, or None.",
        lambda r: (ints(r, 0, r.randint(1, 2), 7),),
        '''
def majority_item(items):
    """Return the item that makes up more than half of the list."""
    candidate = None
    votes = 0
    for item in items:
        if votes == 0:
            candidate = item
        if item == candidate:
            votes += 1
        else:
            votes -= 1
    if items.count(candidate) * 2 > len(items):
        return candidate
    return None
''',
    ),
    _function(
        "shortest_window_with_sum",
        "Return the length of the shortest run of neighbours of non-negative values whose sum is at least target, "
        "or 0 when there is none.",
        lambda r: (ints(r, 0, 6, 8), r.randint(1, 15)),
        """
def shortest_window_with_sum(values, target):
    best = 0
    total = 0
    start = 0
    for end, value in enumerate(values):
        total += value
        while total >= target:
            length = end - start + 1
            if best == 0 or length < best:
                best = length
            total -= values[start]
            start += 1
    return best
""",
    ),
)
