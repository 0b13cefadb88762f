"""Sorting and merging, by hand or by a key."""

from verl_ext.gym.program import Program, function, ints, ordered, several, word


def _function(name, issue, args, source) -> Program:
    return function(name, "sorting", issue, args, source)


def _list(r):
    return (ints(r, 0, 9, 7),)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "insertion_sort",
        "Return the values in ascending order.",
        _list,
        '''
def insertion_sort(values):
    """Return the values in ascending order."""
    result = list(values)
    for index in range(1, len(result)):
        value = result[index]
        place = index
        while place > 0 and result[place - 1] > value:
            result[place] = result[place - 1]
            place -= 1
        result[place] = value
    return result
''',
    ),
    _function(
        "selection_sort_descending",
        "Return the values in descending order, by choosing the largest of the rest again and again.",
        _list,
        """
def selection_sort_descending(values):
    result = list(values)
    for start in range(len(result) - 1):
        largest = start
        for index in range(start + 1, len(result)):
            if result[index] > result[largest]:
                largest = index
        result[start], result[largest] = result[largest], result[start]
    return result
""",
    ),
    _function(
        "bubble_sort_swaps",
        "Sort values in ascending order by swapping neighbours; return the sorted list and the number of swaps.",
        _list,
        """
def bubble_sort_swaps(values):
    result = list(values)
    swaps = 0
    for end in range(len(result) - 1, 0, -1):
        for index in range(end):
            if result[index] > result[index + 1]:
                result[index], result[index + 1] = result[index + 1], result[index]
                swaps += 1
    return result, swaps
""",
    ),
    _function(
        "merge_sorted",
        "Merge two ascending lists into one ascending list.",
        lambda r: (ordered(r, 0, 9, 5), ordered(r, 0, 9, 5)),
        '''
def merge_sorted(first, second):
    """Merge two ascending lists into one ascending list."""
    result = []
    i = 0
    j = 0
    while i < len(first) and j < len(second):
        if first[i] <= second[j]:
            result.append(first[i])
            i += 1
        else:
            result.append(second[j])
            j += 1
    result.extend(first[i:])
    result.extend(second[j:])
    return result
''',
    ),
    _function(
        "merge_sort",
        "Return the values in ascending order, by sorting both halves and merging them.",
        _list,
        """
def merge_sort(values):
    if len(values) <= 1:
        return list(values)
    middle = len(values) // 2
    left = merge_sort(values[:middle])
    right = merge_sort(values[middle:])
    result = []
    while left and right:
        if left[0] <= right[0]:
            result.append(left.pop(0))
        else:
            result.append(right.pop(0))
    return result + left + right
""",
    ),
    _function(
        "quick_sort",
        "Return the values in ascending order, by splitting them around a pivot.",
        _list,
        """
def quick_sort(values):
    if len(values) < 2:
        return list(values)
    pivot = values[0]
    below = [value for value in values[1:] if value < pivot]
    others = [value for value in values[1:] if value >= pivot]
    return quick_sort(below) + [pivot] + quick_sort(others)
""",
    ),
    _function(
        "is_sorted",
        "Tell whether no value is smaller than the one before it.",
        lambda r: (r.choice((ints(r, 0, 3, 5), ordered(r, 0, 5, 6), ordered(r, 0, 5, 4)[::-1])),),
        """
def is_sorted(values):
    for index in range(1, len(values)):
        if values[index - 1] > values[index]:
            return False
    return True
""",
    ),
    _function(
        "counting_sort",
        "Sort whole numbers from 0 to limit by counting them. A number outside of that range is a ValueError.",
        lambda r: (ints(r, 0 if r.random() < 0.8 else -1, r.randint(3, 6), 7), 5),
        '''
def counting_sort(values, limit):
    """Sort whole numbers from 0 to limit by counting them."""
    counts = [0] * (limit + 1)
    for value in values:
        if value < 0 or value > limit:
            raise ValueError("value out of range")
        counts[value] += 1
    result = []
    for value in range(limit + 1):
        result.extend([value] * counts[value])
    return result
''',
    ),
    _function(
        "sort_by_length",
        "Sort words by length, the shortest first, and words of equal length by the alphabet.",
        lambda r: (several(r, lambda r: word(r, "abc", 4), 6),),
        """
def sort_by_length(words):
    pairs = []
    for word in words:
        pairs.append((len(word), word))
    pairs.sort()
    return [word for length, word in pairs]
""",
    ),
    _function(
        "rank_scores",
        "Sort (name, score) pairs by descending score, then by name, and give them ranks from 1. Equal scores "
        "share a rank, and the ranks after them are skipped.",
        lambda r: (several(r, lambda r: (word(r, "abc", 2, 1), r.randint(1, 4)), 6),),
        '''
def rank_scores(entries):
    """Return (rank, name) pairs; equal scores share a rank."""
    ordered = sorted(entries, key=lambda entry: (-entry[1], entry[0]))
    ranking = []
    rank = 0
    last = None
    for position, (name, score) in enumerate(ordered, 1):
        if score != last:
            rank = position
        ranking.append((rank, name))
        last = score
    return ranking
''',
    ),
    _function(
        "move_zeros_to_end",
        "Move all zeros to the end of the list and keep the order of the other values.",
        lambda r: (ints(r, -1, 3, 7),),
        """
def move_zeros_to_end(values):
    result = list(values)
    place = 0
    for value in values:
        if value != 0:
            result[place] = value
            place += 1
    while place < len(result):
        result[place] = 0
        place += 1
    return result
""",
    ),
    _function(
        "three_smallest",
        "Return up to three of the smallest values in ascending order, without sorting the whole list.",
        lambda r: (ints(r, -3, 6, 8),),
        """
def three_smallest(values):
    best = []
    for value in values:
        place = len(best)
        while place > 0 and best[place - 1] > value:
            place -= 1
        best.insert(place, value)
        if len(best) > 3:
            best.pop()
    return best
""",
    ),
)
