"""Small classes that hold things: stacks, buffers, queues, caches."""

from verl_ext.gym.program import Program, calls, stateful, word


def _digit(r):
    return r.randint(0, 3)


def _none(r):
    return ()


def _cached(r):
    steps = []
    for _ in range(r.randint(4, 10)):
        key = r.choice("abc")
        steps.append(r.choice((("put", (key, r.randint(0, 9))), ("get", (key,)))))
    return [*steps, ("keys", ())]


PROGRAMS: tuple[Program, ...] = (
    stateful(
        "BoundedStack",
        "containers",
        "A stack for at most limit items. push tells whether there was room; pop and peek return the top item, or "
        "raise an IndexError when the stack is empty.",
        lambda r: (r.choice((1, 2, 3)),),
        lambda r: [("push", (_digit(r),)), *calls(("push", _digit), ("push", _digit), ("pop",), ("peek",), most=6)(r)],
        '''
class BoundedStack:
    """A stack with a limit."""

    def __init__(self, limit):
        self.limit = limit
        self.items = []

    def push(self, item):
        if len(self.items) >= self.limit:
            return False
        self.items.append(item)
        return True

    def pop(self):
        if not self.items:
            raise IndexError("the stack is empty")
        return self.items.pop()

    def peek(self):
        if not self.items:
            raise IndexError("the stack is empty")
        return self.items[-1]
''',
    ),
    stateful(
        "RingBuffer",
        "containers",
        "A buffer that keeps the last size items. add returns how many items it holds then, oldest returns the "
        "first of them or None, and items lists them from the oldest to the newest.",
        lambda r: (r.choice((1, 2, 3, 4)),),
        lambda r: [
            *calls(("add", lambda r: r.randint(0, 9)), ("add", lambda r: r.randint(0, 9)), ("oldest",))(r),
            ("items", ()),
        ],
        '''
class RingBuffer:
    """A buffer that keeps the last size items."""

    def __init__(self, size):
        self.slots = [None] * size
        self.start = 0
        self.count = 0

    def add(self, item):
        size = len(self.slots)
        place = (self.start + self.count) % size
        self.slots[place] = item
        if self.count < size:
            self.count += 1
        else:
            self.start = (self.start + 1) % size
        return self.count

    def oldest(self):
        if self.count == 0:
            return None
        return self.slots[self.start]

    def items(self):
        result = []
        for offset in range(self.count):
            result.append(self.slots[(self.start + offset) % len(self.slots)])
        return result
''',
    ),
    stateful(
        "PriorityQueue",
        "containers",
        "A queue that serves the smallest priority first, and equal priorities in the order of arrival. add "
        "returns the length; take returns the item, or None when there is none.",
        _none,
        lambda r: [
            *calls(*[("add", lambda r: r.choice("abcd"), _digit)] * 2, ("take",))(r),
            ("take", ()),
            ("take", ()),
        ],
        '''
class PriorityQueue:
    """A queue that serves the smallest priority first."""

    def __init__(self):
        self.entries = []

    def add(self, item, priority):
        place = len(self.entries)
        while place > 0 and self.entries[place - 1][0] > priority:
            place -= 1
        self.entries.insert(place, (priority, item))
        return len(self.entries)

    def take(self):
        if not self.entries:
            return None
        priority, item = self.entries.pop(0)
        return item
''',
    ),
    stateful(
        "MovingAverage",
        "containers",
        "The average of the last size numbers. add takes a number and returns the average rounded down; reset "
        "forgets all.",
        lambda r: (r.choice((1, 2, 3)),),
        calls(*[("add", lambda r: r.randint(-4, 9))] * 6, ("reset",)),
        '''
class MovingAverage:
    """The average of the last size numbers."""

    def __init__(self, size):
        self.size = size
        self.values = []
        self.total = 0

    def add(self, value):
        self.values.append(value)
        self.total += value
        if len(self.values) > self.size:
            self.total -= self.values.pop(0)
        return self.total // len(self.values)

    def reset(self):
        self.values = []
        self.total = 0
''',
    ),
    stateful(
        "TextEditor",
        "containers",
        "A line of text with undo. type appends text, erase removes up to count characters from the end, undo "
        "takes back the last change and tells whether there was one; the first two return the new text.",
        _none,
        lambda r: [
            *calls(
                ("type", lambda r: word(r, "abc", 3, 1)),
                ("type", lambda r: word(r, "xy", 2)),
                ("erase", _digit),
                ("undo",),
            )(r),
            ("erase", (0,)),
        ],
        '''
class TextEditor:
    """A line of text with undo."""

    def __init__(self):
        self.text = ""
        self.history = []

    def type(self, more):
        self.history.append(self.text)
        self.text += more
        return self.text

    def erase(self, count):
        self.history.append(self.text)
        keep = max(0, len(self.text) - count)
        self.text = self.text[:keep]
        return self.text

    def undo(self):
        if not self.history:
            return False
        self.text = self.history.pop()
        return True
''',
    ),
    stateful(
        "RecentCache",
        "containers",
        "A cache for at most limit entries. put stores a value and returns the key that had to go, the one used "
        "longest ago, or None; get returns the value or None and counts as use; keys lists keys from oldest to "
        "newest use.",
        lambda r: (r.choice((1, 2, 2, 3)),),
        _cached,
        '''
class RecentCache:
    """A cache that forgets the key used longest ago."""

    def __init__(self, limit):
        self.limit = limit
        self.entries = {}

    def get(self, key):
        if key not in self.entries:
            return None
        value = self.entries.pop(key)
        self.entries[key] = value
        return value

    def put(self, key, value):
        dropped = None
        if key in self.entries:
            self.entries.pop(key)
        elif len(self.entries) >= self.limit:
            dropped = next(iter(self.entries))
            del self.entries[dropped]
        self.entries[key] = value
        return dropped

    def keys(self):
        return list(self.entries)
''',
    ),
    stateful(
        "Multiset",
        "containers",
        "A collection that knows how often each item is in it. add returns the new count, remove takes one away "
        "and tells whether there was one, count asks, and total counts all items.",
        lambda r: (),
        lambda r: [
            r.choice((("add", (k,)), ("add", (k, r.randint(1, 3))), ("remove", (k,)), ("count", (k,)), ("total", ())))
            for k in (r.choice("xyz") for _ in range(r.randint(2, 8)))
        ],
        '''
class Multiset:
    """A collection that knows how often each item is in it."""

    def __init__(self):
        self.counts = {}

    def add(self, item, times=1):
        self.counts[item] = self.counts.get(item, 0) + times
        return self.counts[item]

    def remove(self, item):
        if self.counts.get(item, 0) == 0:
            return False
        self.counts[item] -= 1
        return True

    def count(self, item):
        return self.counts.get(item, 0)

    def total(self):
        return sum(self.counts.values())
''',
    ),
)
