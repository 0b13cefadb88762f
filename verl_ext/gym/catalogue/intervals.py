"""Ranges on a line: overlaps, unions, gaps, bookings."""

from verl_ext.gym.program import Program, function, several, stateful


def _function(name, issue, args, source) -> Program:
    return function(name, "intervals", issue, args, source)


def _interval(r, high=9):
    start = r.randint(0, high)
    return start, start + r.choice((0, 1, 2, 3, 5))


def _intervals(r, most=5):
    return several(r, _interval, most)


def _lasting(r, most=5):
    """Intervals of at least length one."""
    return several(r, _cut, most)


def _touching(r):
    """Two intervals, often with a common end."""
    first = _interval(r, 5)
    start = r.choice((first[0], first[1], first[1] + 1, first[0] - 2, r.randint(0, 8)))
    second = (start, start + r.randint(0, 4))
    return r.choice(((first, second), (second, first)))


def _cut(r, high=9):
    start = r.choice((2, r.randint(0, high)))
    return start, start + r.randint(1, 6)


def _disjoint(r):
    """Ascending intervals that do not touch."""
    result, place = [], 0
    for _ in range(r.randint(0, 4)):
        start = place + r.randint(1, 3)
        place = start + r.randint(0, 3)
        result.append((start, place))
    return result


PROGRAMS: tuple[Program, ...] = (
    _function(
        "intervals_overlap",
        "Tell whether two closed intervals share at least one point.",
        _touching,
        """
def intervals_overlap(first, second):
    start_a, end_a = first
    start_b, end_b = second
    if end_a < start_b:
        return False
    return start_a <= end_b
""",
    ),
    _function(
        "intersect_intervals",
        "Return the closed interval that two closed intervals share, or None.",
        _touching,
        """
def intersect_intervals(first, second):
    start = max(first[0], second[0])
    end = min(first[1], second[1])
    if start > end:
        return None
    return start, end
""",
    ),
    _function(
        "merge_intervals",
        "Merge closed intervals that overlap or touch in a point; return the rest in ascending order.",
        lambda r: (_intervals(r),),
        '''
def merge_intervals(intervals):
    """Merge closed intervals that overlap or touch."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            last_start, last_end = merged[-1]
            merged[-1] = (last_start, max(last_end, end))
        else:
            merged.append((start, end))
    return merged
''',
    ),
    _function(
        "covered_length",
        "Return the length of the line that is covered by at least one of the intervals.",
        lambda r: (_intervals(r),),
        """
def covered_length(intervals):
    total = 0
    reach = None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total += end - start
            reach = end
        elif end > reach:
            total += end - reach
            reach = end
    return total
""",
    ),
    _function(
        "free_gaps",
        "Return the gaps between busy intervals within the time from opening to closing, in ascending order.",
        lambda r: (_lasting(r, 4), r.randint(0, 4), r.randint(6, 12)),
        '''
def free_gaps(busy, opening, closing):
    """Return the gaps between busy intervals."""
    gaps = []
    free_from = opening
    for start, end in sorted(busy):
        if start >= closing:
            break
        if start > free_from:
            gaps.append((free_from, start))
        free_from = max(free_from, end)
    if free_from < closing:
        gaps.append((free_from, closing))
    return gaps
''',
    ),
    _function(
        "most_simultaneous",
        "Return how many meetings at most run at the same time. A meeting ends before another one that starts at "
        "that time.",
        lambda r: (_lasting(r),),
        """
def most_simultaneous(meetings):
    events = []
    for start, end in meetings:
        events.append((start, 1))
        events.append((end, -1))
    events.sort()
    running = 0
    most = 0
    for time, change in events:
        running += change
        most = max(most, running)
    return most
""",
    ),
    _function(
        "pick_most_meetings",
        "Choose as many meetings as possible that do not overlap, by taking the one that ends first again and "
        "again; one may start when the one before ends.",
        lambda r: (_lasting(r, 6),),
        """
def pick_most_meetings(meetings):
    chosen = []
    free_from = None
    for end, start in sorted((end, start) for start, end in meetings):
        if free_from is None or start >= free_from:
            chosen.append((start, end))
            free_from = end
    return chosen
""",
    ),
    _function(
        "insert_interval",
        "Insert an interval into an ascending list of separate closed intervals and merge it with all that it meets.",
        lambda r: (_disjoint(r), _interval(r)),
        '''
def insert_interval(intervals, new):
    """Insert an interval and merge it with all that it meets."""
    start, end = new
    before = []
    after = []
    for low, high in intervals:
        if high < start:
            before.append((low, high))
        elif low > end:
            after.append((low, high))
        else:
            start = min(start, low)
            end = max(end, high)
    return before + [(start, end)] + after
''',
    ),
    _function(
        "numbers_to_ranges",
        "Write ascending numbers as text, with each run of three or more consecutive ones as a range like 1-4.",
        lambda r: (sorted(r.sample(range(10), r.randint(0, 8))),),
        '''
def numbers_to_ranges(numbers):
    """Write ascending numbers as text with ranges."""
    parts = []
    index = 0
    while index < len(numbers):
        end = index
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - index >= 2:
            parts.append(str(numbers[index]) + "-" + str(numbers[end]))
            index = end + 1
        else:
            parts.append(str(numbers[index]))
            index += 1
    return ",".join(parts)
''',
    ),
    _function(
        "subtract_interval",
        "Cut the half-open interval cut out of the half-open interval base; return the parts that remain, from "
        "left to right, without empty ones.",
        lambda r: ((2, r.randint(3, 8)), _cut(r)),
        """
def subtract_interval(base, cut):
    start, end = base
    parts = []
    if cut[1] <= start or cut[0] >= end:
        return [base]
    if start < cut[0]:
        parts.append((start, cut[0]))
    if cut[1] < end:
        parts.append((cut[1], end))
    return parts
""",
    ),
    _function(
        "rooms_needed",
        "Assign meetings, in order of their start, to the first room that is free; return the number of the room "
        "for each meeting in that order. A room is free again at the time its meeting ends.",
        lambda r: (_lasting(r),),
        """
def rooms_needed(meetings):
    ends = []
    assigned = []
    for start, end in sorted(meetings):
        room = 0
        while room < len(ends) and ends[room] > start:
            room += 1
        if room == len(ends):
            ends.append(end)
        else:
            ends[room] = end
        assigned.append(room)
    return assigned
""",
    ),
    stateful(
        "BookingCalendar",
        "intervals",
        "Bookings of half-open times. book stores one that overlaps no other and tells whether it did; an end "
        "that is not after the start is a ValueError. busy_at asks whether a time is taken, and count how many "
        "bookings there are.",
        lambda r: (),
        lambda r: [
            r.choice((("book", span), ("book", span), ("book", span), ("busy_at", span[:1]), ("count", ())))
            for span in [
                (s, s + r.choice((1, 2, 3, 3) if r.random() < 0.92 else (0, 0, -1)))
                for s in (r.randint(0, 7) for _ in range(r.randint(2, 7)))
            ]
        ],
        '''
class BookingCalendar:
    """Bookings of half-open times that never overlap."""

    def __init__(self):
        self.bookings = []

    def book(self, start, end):
        if end <= start:
            raise ValueError("a booking must end after it starts")
        for other_start, other_end in self.bookings:
            if start < other_end and other_start < end:
                return False
        self.bookings.append((start, end))
        return True

    def busy_at(self, time):
        for start, end in self.bookings:
            if start <= time < end:
                return True
        return False

    def count(self):
        return len(self.bookings)
''',
    ),
)
