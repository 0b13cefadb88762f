"""Things that change state: locks, machines, games, and functions that walk through states."""

from verl_ext.gym.program import Program, calls, function, ints, near, several, size, stateful, word

FAMILY = "state_machines"


def _none(r):
    return ()


def _events(r):
    """What happens to an order, often in the order in which it should."""
    begin = ["pay", "ship", "deliver"][: r.randint(0, 3)]
    return (begin + several(r, lambda r: r.choice(("pay", "ship", "deliver", "cancel")), 5),)


PROGRAMS: tuple[Program, ...] = (
    stateful(
        "Turnstile",
        FAMILY,
        "A turnstile that is locked at first. coin unlocks it and tells whether the coin was needed; push lets "
        "one person through and locks it, and tells whether that went; passed counts people.",
        _none,
        lambda r: [*calls(("coin",), ("push",), most=9)(r), ("passed", ())],
        '''
class Turnstile:
    """A turnstile that a coin unlocks for one person."""

    def __init__(self):
        self.locked = True
        self.people = 0

    def coin(self):
        needed = self.locked
        self.locked = False
        return needed

    def push(self):
        if self.locked:
            return False
        self.people += 1
        self.locked = True
        return True

    def passed(self):
        return self.people
''',
    ),
    stateful(
        "CombinationLock",
        FAMILY,
        "A lock that opens when the digits of its code are entered one after the other. enter takes a digit and "
        "tells whether the lock is open; a wrong digit starts over, but may itself be the first digit. attempts "
        "counts wrong digits.",
        lambda r: ([r.randint(1, 2) for _ in range(r.randint(1, 3))],),
        lambda r: [
            *calls(("enter", lambda r: r.randint(1, 3)), ("enter", lambda r: r.randint(1, 2)))(r),
            ("attempts", ()),
        ],
        '''
class CombinationLock:
    """A lock that opens when its code is entered."""

    def __init__(self, code):
        self.code = code
        self.matched = 0
        self.wrong = 0

    def enter(self, digit):
        if self.matched == len(self.code):
            return True
        if digit == self.code[self.matched]:
            self.matched += 1
        else:
            self.wrong += 1
            self.matched = 0
            if digit == self.code[0]:
                self.matched = 1
        return self.matched == len(self.code)

    def attempts(self):
        return self.wrong
''',
    ),
    stateful(
        "VendingMachine",
        FAMILY,
        "A machine that sells one article. insert adds coins and returns the credit; buy returns the change, or "
        "None when the credit is below the price or nothing is left; cancel gives the credit back.",
        lambda r: (r.choice((2, 3)), r.choice((0, 1, 1, 2))),
        calls(*[("insert", lambda r: r.randint(1, 3))] * 3, *[("buy",)] * 3, ("cancel",), most=10, least=3),
        '''
class VendingMachine:
    """A machine that sells one article."""

    def __init__(self, price, stock):
        self.price = price
        self.stock = stock
        self.credit = 0

    def insert(self, coin):
        self.credit += coin
        return self.credit

    def buy(self):
        if self.stock == 0 or self.credit < self.price:
            return None
        change = self.credit - self.price
        self.credit = 0
        self.stock -= 1
        return change

    def cancel(self):
        refund = self.credit
        self.credit = 0
        return refund
''',
    ),
    stateful(
        "RateLimiter",
        FAMILY,
        "Allows at most limit requests within any window of the given seconds. allow takes an ascending time and "
        "tells whether the request may pass; a request exactly window seconds old no longer counts.",
        lambda r: (r.choice((1, 2, 2, 3)), r.choice((2, 3, 5))),
        lambda r: [("allow", (time,)) for time in sorted(r.randint(0, 9) for _ in range(r.randint(2, 8)))],
        '''
class RateLimiter:
    """Allows a limited number of requests in a window of time."""

    def __init__(self, limit, window):
        self.limit = limit
        self.window = window
        self.times = []

    def allow(self, now):
        while self.times and self.times[0] <= now - self.window:
            self.times.pop(0)
        if len(self.times) < self.limit:
            self.times.append(now)
            return True
        return False
''',
    ),
    stateful(
        "Scoreboard",
        FAMILY,
        "Points of players. score adds points and returns the player's sum; leader returns the player with the "
        "most points, by the alphabet when equal, or None; above lists the players with at least the given "
        "points, sorted.",
        _none,
        calls(
            *[("score", lambda r: r.choice("abc"), lambda r: r.randint(-1, 3))] * 3,
            ("leader",),
            ("above", lambda r: r.randint(1, 4)),
        ),
        '''
class Scoreboard:
    """Points of players."""

    def __init__(self):
        self.points = {}

    def score(self, player, points):
        self.points[player] = self.points.get(player, 0) + points
        return self.points[player]

    def leader(self):
        best = None
        for player in sorted(self.points):
            if best is None or self.points[player] > self.points[best]:
                best = player
        return best

    def above(self, limit):
        return sorted(player for player, points in self.points.items() if points >= limit)
''',
    ),
    stateful(
        "Thermostat",
        FAMILY,
        "A heater with a target and a tolerance. measure turns it on below target minus tolerance and off above "
        "target plus tolerance, otherwise leaves it as it is, and tells whether it is on; switches counts the "
        "changes.",
        lambda r: r.choice(((20,), (20, 0), (20, 2))),
        lambda r: [*calls(("measure", lambda r: r.randint(17, 23)), least=3)(r), ("switches", ())],
        '''
class Thermostat:
    """A heater that switches with a tolerance."""

    def __init__(self, target, tolerance=1):
        self.target = target
        self.tolerance = tolerance
        self.on = False
        self.changes = 0

    def measure(self, degrees):
        before = self.on
        if degrees < self.target - self.tolerance:
            self.on = True
        elif degrees > self.target + self.tolerance:
            self.on = False
        if before != self.on:
            self.changes += 1
        return self.on

    def switches(self):
        return self.changes
''',
    ),
    stateful(
        "RetryCounter",
        FAMILY,
        "Remembers failures in a row. failed doubles the waiting time, which is 1 after the first failure and "
        "never above the limit, and returns it; worked sets all back; gave_up tells whether there were at least "
        "three in a row.",
        lambda r: r.choice(((), (), (4,), (3,), (1,), (16,))),
        calls(*[("failed",)] * 5, ("worked",), ("gave_up",), most=10, least=4),
        '''
class RetryCounter:
    """Remembers failures in a row and how long to wait."""

    def __init__(self, limit=8):
        self.limit = limit
        self.failures = 0
        self.wait = 0

    def failed(self):
        self.failures += 1
        if self.wait == 0:
            self.wait = 1
        else:
            self.wait = min(self.wait * 2, self.limit)
        return self.wait

    def worked(self):
        self.failures = 0
        self.wait = 0

    def gave_up(self):
        return self.failures >= 3
''',
    ),
    function(
        "traffic_light_after",
        FAMILY,
        "Return the colour of a traffic light after the given seconds: green for 4, yellow for 1, red for 3, and "
        "again, starting with green. Negative seconds are a ValueError.",
        lambda r: (r.choice((near(r, 0, 4, 8), r.randint(0, 60), r.randint(0, 60))),),
        """
def traffic_light_after(seconds):
    if seconds < 0:
        raise ValueError("negative time")
    phases = [("green", 4), ("yellow", 1), ("red", 3)]
    cycle = sum(length for name, length in phases)
    rest = seconds % cycle
    for name, length in phases:
        if rest < length:
            return name
        rest -= length
""",
    ),
    function(
        "robot_position",
        FAMILY,
        "Follow a robot that starts at (0, 0) facing north: F moves a step, L and R turn, and everything else is "
        "ignored. Return its place as (x, y).",
        lambda r: (word(r, "FFLRx", 9),),
        '''
def robot_position(commands):
    """Return where the robot stands in the end."""
    x = 0
    y = 0
    dx = 0
    dy = 1
    for command in commands:
        if command == "F":
            x += dx
            y += dy
        elif command == "L":
            dx, dy = -dy, dx
        elif command == "R":
            dx, dy = dy, -dx
    return x, y
''',
    ),
    function(
        "lift_travel",
        FAMILY,
        "A lift starts on a floor and drives to the requested floors one after the other. Return how many floors "
        "it passes in total; a floor outside of 0 to top is skipped.",
        lambda r: (r.randint(0, 5), ints(r, -1, 6, 6), 5),
        """
def lift_travel(start, requests, top):
    travelled = 0
    floor = start
    for request in requests:
        if request < 0 or request > top:
            continue
        travelled += abs(request - floor)
        floor = request
    return travelled
""",
    ),
    function(
        "order_status",
        FAMILY,
        "Follow an order through its events: new can be paid or cancelled, paid can be shipped or cancelled, "
        "shipped can be delivered. Other events are ignored. Return the final status.",
        _events,
        '''
def order_status(events):
    """Follow an order through its events."""
    status = "new"
    for event in events:
        if event == "pay" and status == "new":
            status = "paid"
        elif event == "ship" and status == "paid":
            status = "shipped"
        elif event == "deliver" and status == "shipped":
            status = "delivered"
        elif event == "cancel" and status in ("new", "paid"):
            status = "cancelled"
    return status
''',
    ),
    function(
        "life_step",
        FAMILY,
        "Advance a row of cells by one step: a cell lives in the next step when exactly one of its two neighbours "
        "lives; beyond the ends nothing lives.",
        lambda r: ([r.randint(0, 1) for _ in range(size(r, 8))],),
        """
def life_step(cells):
    result = []
    for index in range(len(cells)):
        left = cells[index - 1] if index > 0 else 0
        right = cells[index + 1] if index + 1 < len(cells) else 0
        if left + right == 1:
            result.append(1)
        else:
            result.append(0)
    return result
""",
    ),
    function(
        "tennis_game_score",
        FAMILY,
        "Return the score of a tennis game from the list of point winners A and B: the score like 30-15, deuce, "
        "advantage A, or game A. Points after the end of the game do not count.",
        lambda r: (r.choice(("", "ABBABA", "AABB", "ABABABAB")) + word(r, "AB", 5),),
        '''
def tennis_game_score(points):
    """Return the score of a tennis game."""
    names = ["0", "15", "30", "40"]
    a = 0
    b = 0
    for winner in points:
        if winner == "A":
            a += 1
        else:
            b += 1
        if max(a, b) >= 4 and abs(a - b) >= 2:
            return "game " + winner
    if a >= 3 and a == b:
        return "deuce"
    if a >= 4 or b >= 4:
        return "advantage A" if a > b else "advantage B"
    return names[a] + "-" + names[b]
''',
    ),
)
