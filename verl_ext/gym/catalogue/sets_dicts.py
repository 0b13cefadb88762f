"""Dicts and sets: counting, grouping, inverting, merging."""

from verl_ext.gym.program import Program, function, ints, several, size, word, words


def _function(name, issue, args, source) -> Program:
    return function(name, "sets_dicts", issue, args, source)


def _counts(r, low=-1, high=4, most=4):
    return {key: r.randint(low, high) for key in r.sample("abcde", size(r, most))}


def _rows(r):
    return several(r, lambda r: (r.choice("abc"), r.randint(-2, 6)), 6)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "count_words",
        "Count how often each word occurs in a text; upper and lower case are the same.",
        lambda r: (" ".join(r.choice(("a", "A", "b", "bb", "Bb", " ")) for _ in range(size(r, 7))),),
        """
def count_words(text):
    counts = {}
    for word in text.lower().split():
        if word in counts:
            counts[word] += 1
        else:
            counts[word] = 1
    return counts
""",
    ),
    _function(
        "most_common_item",
        "Return the item that occurs most often; of several the one that comes first in the list. An empty list "
        "gives None.",
        lambda r: (ints(r, 0, 3, 8),),
        """
def most_common_item(items):
    counts = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    best = None
    for item, count in counts.items():
        if best is None or count > counts[best]:
            best = item
    return best
""",
    ),
    _function(
        "group_by_remainder",
        "Group numbers by their remainder for a divisor, in a dict from remainder to the list of numbers. A "
        "divisor of 0 is a ZeroDivisionError.",
        lambda r: (ints(r, -4, 9), r.choice((2, 3, 3, 4, 5, 0) if r.random() < 0.6 else (2, 3))),
        """
def group_by_remainder(numbers, divisor):
    groups = {}
    for number in numbers:
        key = number % divisor
        if key not in groups:
            groups[key] = []
        groups[key].append(number)
    return groups
""",
    ),
    _function(
        "invert_mapping",
        "Turn a dict around: each value leads to the sorted list of the keys that had it.",
        lambda r: (_counts(r, 0, 2, 5),),
        """
def invert_mapping(mapping):
    inverted = {}
    for key, value in mapping.items():
        inverted.setdefault(value, []).append(key)
    for keys in inverted.values():
        keys.sort()
    return inverted
""",
    ),
    _function(
        "merge_counts",
        "Add up two dicts of counts key by key, and leave out keys whose sum is zero.",
        lambda r: (_counts(r, -2, 3), _counts(r, -3, 3)),
        '''
def merge_counts(first, second):
    """Add up two dicts of counts, without zeros."""
    result = dict(first)
    for key, count in second.items():
        result[key] = result.get(key, 0) + count
    for key in list(result):
        if result[key] == 0:
            del result[key]
    return result
''',
    ),
    _function(
        "dict_changes",
        "Compare an old and a new dict; return the sorted lists of keys that were added, removed and changed.",
        lambda r: (_counts(r, 0, 1), _counts(r, 0, 1)),
        '''
def dict_changes(old, new):
    """Return the keys that were added, removed and changed."""
    added = []
    removed = []
    changed = []
    for key in new:
        if key not in old:
            added.append(key)
        elif old[key] != new[key]:
            changed.append(key)
    for key in old:
        if key not in new:
            removed.append(key)
    return sorted(added), sorted(removed), sorted(changed)
''',
    ),
    _function(
        "common_items",
        "Return the items that stand in both lists, each once, in the order of the first list.",
        lambda r: (ints(r, 0, 5, 6), ints(r, 0, 5, 6)),
        """
def common_items(first, second):
    allowed = set(second)
    result = []
    for item in first:
        if item in allowed and item not in result:
            result.append(item)
    return result
""",
    ),
    _function(
        "symmetric_difference",
        "Return the set of items that stand in exactly one of two lists.",
        lambda r: (ints(r, 0, 6, 5), ints(r, 0, 6, 5)),
        """
def symmetric_difference(first, second):
    result = set()
    for item in first:
        if item not in second:
            result.add(item)
    for item in second:
        if item not in first:
            result.add(item)
    return result
""",
    ),
    _function(
        "sum_by_key",
        "Add up the amounts of (key, amount) pairs for each key, ignoring negative amounts.",
        lambda r: (_rows(r),),
        """
def sum_by_key(pairs):
    totals = {}
    for key, amount in pairs:
        if amount < 0:
            continue
        totals[key] = totals.get(key, 0) + amount
    return totals
""",
    ),
    _function(
        "best_by_key",
        "Keep for each key of (key, score) pairs the highest score, and return the pairs sorted by key.",
        lambda r: (_rows(r),),
        """
def best_by_key(pairs):
    best = {}
    for key, score in pairs:
        if key not in best or score > best[key]:
            best[key] = score
    return sorted(best.items())
""",
    ),
    _function(
        "lookup_nested",
        "Follow a list of keys into nested dicts and return what is there. A missing key gives the default, as "
        "does a way that leads on from a value that is no dict.",
        lambda r: (
            {"a": {"b": {"c": r.randint(1, 9)}, "d": r.choice((0, None, 5))}, "b": r.choice(({}, 3, {"a": 4}))},
            [r.choice("abcd"[: r.choice((2, 4))]) for _ in range(r.randint(0, 3))],
            r.choice((None, -1)),
        ),
        """
def lookup_nested(data, keys, default):
    current = data
    for key in keys:
        if not isinstance(current, dict):
            return default
        try:
            current = current[key]
        except KeyError:
            return default
    return current
""",
    ),
    _function(
        "total_stock_value",
        "Add up price times amount for all articles in stock. An article without a price is a KeyError, unless "
        "none of it is left.",
        lambda r: (
            {key: r.choice((0, 0, 1, 2, 5)) for key in r.sample("abcd", size(r, 4))},
            {key: r.choice((0, 3, 10)) for key in r.sample("abcd", r.choice((3, 4, 4)))},
        ),
        """
def total_stock_value(amounts, prices):
    total = 0
    for article, amount in amounts.items():
        if amount == 0:
            continue
        total += prices[article] * amount
    return total
""",
    ),
    _function(
        "is_subset_with_counts",
        "Tell whether a word can be built from the letters given, each used at most as often as it is there.",
        lambda r: (word(r, "ab", 4), word(r, "ab", 5)),
        """
def is_subset_with_counts(word, letters):
    available = {}
    for letter in letters:
        available[letter] = available.get(letter, 0) + 1
    for letter in word:
        if available.get(letter, 0) < 1:
            return False
        available[letter] -= 1
    return True
""",
    ),
    _function(
        "index_words",
        "Return a dict from each word to the ascending list of the lines, counted from 1, that contain it.",
        lambda r: (several(r, lambda r: " ".join(words(r, "ab", 3, 0, 2)), 4),),
        '''
def index_words(lines):
    """Return for each word the numbers of the lines that contain it."""
    index = {}
    for number, line in enumerate(lines, start=1):
        for word in line.split():
            places = index.setdefault(word, [])
            if not places or places[-1] != number:
                places.append(number)
    return index
''',
    ),
)
