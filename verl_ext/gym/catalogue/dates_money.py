"""Calendar, clock times and amounts of money in whole cents."""

from verl_ext.gym.program import Program, calls, function, near, several, stateful


def _function(name, issue, args, source) -> Program:
    return function(name, "dates_money", issue, args, source)


def _year(r):
    return r.choice(
        (r.choice((1600, 2000, 2400)), r.randint(16, 24) * 100, r.randint(400, 550) * 4, r.randint(1890, 2110))
    )


def _clock(r):
    return f"{r.choice((0, 1, 9, 11, 12, 13, 23)):02}:{r.choice((0, 1, 29, 30, 59)):02}"


def _time_span(r):
    first = _clock(r)
    beside = first[:4] + str((int(first[4]) + 9) % 10)
    return first, r.choice((first, beside, _clock(r), _clock(r)))


def _shift(r):
    begin = r.randint(6, 22)
    return begin, begin + r.choice((0, 1, 4, 8, 9, 11)), r.choice((10, 15))


_transactions = calls(
    ("deposit", lambda r: r.choice((0, 1, 2, 3, 3))),
    ("withdraw", lambda r: r.choice((1, 1, 2))),
    ("withdraw", lambda r: r.choice((0, 1, 2, 4))),
    ("balance",),
    most=4,
    least=0,
)

PROGRAMS: tuple[Program, ...] = (
    _function(
        "is_leap_year",
        "Tell whether a year is a leap year: every fourth year, but of the full centuries only every fourth.",
        lambda r: (_year(r),),
        """
def is_leap_year(year):
    if year % 400 == 0:
        return True
    if year % 100 == 0:
        return False
    return year % 4 == 0
""",
    ),
    _function(
        "days_in_month",
        "Return the number of days of a month. A month outside of 1 to 12 is a ValueError.",
        lambda r: (_year(r), r.choice((2, 2, r.choice((0, 1, 12, 13)), r.randint(1, 12)))),
        '''
def days_in_month(year, month):
    """Return the number of days of a month."""
    if month < 1 or month > 12:
        raise ValueError("no such month")
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    if month in (4, 6, 9, 11):
        return 30
    return 31
''',
    ),
    _function(
        "day_of_year",
        "Return the number of a day in its year, where 1 January is day 1.",
        lambda r: (_year(r), r.choice((1, 2, 3, 12, r.randint(1, 12))), r.choice((1, 28, r.randint(1, 28)))),
        """
def day_of_year(year, month, day):
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        lengths[1] = 29
    total = day
    for length in lengths[:month - 1]:
        total += length
    return total
""",
    ),
    _function(
        "weekday_after",
        "Return the name of the day of the week that comes the given number of days after today, or before it "
        "when negative. An unknown name is a ValueError.",
        lambda r: (r.choice(("Mon", "Tue", "Fri", "Sat", "Sun", "Sun", "Day")), r.randint(-9, 16)),
        """
def weekday_after(today, days):
    names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    if today not in names:
        raise ValueError("unknown day")
    place = (names.index(today) + days) % len(names)
    return names[place]
""",
    ),
    _function(
        "minutes_between",
        "Return the minutes from one clock time (HH:MM) to another; an end before the start is on the next day.",
        _time_span,
        '''
def minutes_between(start, end):
    """Return the minutes from one clock time to another."""
    start_hour, start_minute = start.split(":")
    end_hour, end_minute = end.split(":")
    begin = int(start_hour) * 60 + int(start_minute)
    finish = int(end_hour) * 60 + int(end_minute)
    if finish < begin:
        finish += 24 * 60
    return finish - begin
''',
    ),
    _function(
        "format_duration",
        "Write a number of seconds as hours, minutes and seconds like 1h 2m 3s; parts that are zero are left out, "
        "and nothing at all is 0s.",
        lambda r: (near(r, 0, 1, 60, 3599, 3600, 7260, r.randint(1, 90000), r.randint(1, 9000)),),
        """
def format_duration(seconds):
    if seconds <= 0:
        return "0s"
    hours = seconds // 3600
    minutes = seconds % 3600 // 60
    rest = seconds % 60
    parts = []
    if hours > 0:
        parts.append(str(hours) + "h")
    if minutes > 0:
        parts.append(str(minutes) + "m")
    if rest > 0:
        parts.append(str(rest) + "s")
    return " ".join(parts)
""",
    ),
    _function(
        "to_twelve_hour_clock",
        "Write an hour from 0 to 23 and a minute as a time with am or pm, so 0:05 becomes 12:05 am.",
        lambda r: (r.choice((0, 1, 11, 12, 13, 23, r.randint(0, 23))), r.choice((0, 5, 9, 10, 59))),
        """
def to_twelve_hour_clock(hour, minute):
    suffix = "am"
    if hour >= 12:
        suffix = "pm"
    shown = hour % 12
    if shown == 0:
        shown = 12
    padding = "0" if minute < 10 else ""
    return str(shown) + ":" + padding + str(minute) + " " + suffix
""",
    ),
    _function(
        "make_change",
        "Pay an amount with as few coins as possible, always taking the largest coin that fits; return a dict "
        "from coin to count without zeros.",
        lambda r: (r.choice((0, 1, r.randint(1, 60), r.randint(30, 250), r.randint(30, 250))),),
        """
def make_change(amount):
    change = {}
    rest = amount
    for coin in (100, 50, 20, 10, 5, 2, 1):
        count = rest // coin
        if count > 0:
            change[coin] = count
            rest -= count * coin
    return change
""",
    ),
    _function(
        "progressive_tax",
        "Compute the tax in whole units: nothing up to 1000, 10 percent of what is above that up to 5000, and 20 "
        "percent of what is above 5000, rounded down.",
        lambda r: (r.choice((near(r, 0, 1000, 5000, 1010, 5010), r.randint(0, 1500), r.randint(900, 9000))),),
        '''
def progressive_tax(income):
    """Compute the tax in whole units."""
    brackets = [(1000, 10), (5000, 20)]
    tax = 0
    for index, (floor, rate) in enumerate(brackets):
        if income <= floor:
            break
        ceiling = income
        if index + 1 < len(brackets):
            ceiling = min(income, brackets[index + 1][0])
        tax += (ceiling - floor) * rate
    return tax // 100
''',
    ),
    _function(
        "split_bill",
        "Split an amount of cents among people as evenly as possible; the first ones pay one cent more when it "
        "does not divide evenly. Nobody to pay is a ValueError.",
        lambda r: (r.choice((0, 1, r.randint(0, 12), r.randint(1, 500))), r.choice((0, 1, 2, 3, 4, 5, 6))),
        """
def split_bill(cents, people):
    if people <= 0:
        raise ValueError("nobody pays")
    share = cents // people
    extra = cents % people
    shares = []
    for index in range(people):
        if index < extra:
            shares.append(share + 1)
        else:
            shares.append(share)
    return shares
""",
    ),
    _function(
        "compound_interest",
        "Return the cents in an account after the given years when each year adds the interest in percent, "
        "rounded down to whole cents.",
        lambda r: (r.choice((0, 99, 100, r.randint(1, 9999))), r.choice((0, 1, 3, 5, 10)), r.randint(0, 6)),
        """
def compound_interest(cents, percent, years):
    balance = cents
    for _ in range(years):
        interest = balance * percent // 100
        balance += interest
    return balance
""",
    ),
    _function(
        "shopping_total",
        "Add up (price, count) pairs in cents. Ten or more of one item cost 10 percent less, rounded down for "
        "each such position, and shipping of 500 is added when the sum is below 5000 and not zero.",
        lambda r: (
            several(r, lambda r: (r.choice((99, 5, 500, 1000, 2500)), r.choice((0, 1, 2, 9, 10, 11))), 3)
            if r.random() < 0.8
            else [(r.choice((2499, 2500)), 2), (r.choice((0, 1)), 1)],
        ),
        '''
def shopping_total(items):
    """Add up (price, count) pairs with discount and shipping."""
    total = 0
    for price, count in items:
        cost = price * count
        if count >= 10:
            cost = cost * 90 // 100
        total += cost
    if 0 < total < 5000:
        total += 500
    return total
''',
    ),
    _function(
        "shift_pay",
        "Pay a shift from hour begin to hour end (hours of the next day count on from 24): the rate for each "
        "hour, one and a half times as much after the eighth hour, and 2 extra for each hour that starts at 22 or "
        "later; rounded down.",
        _shift,
        """
def shift_pay(begin, end, rate):
    double = 0
    for hour in range(begin, end):
        worked = hour - begin
        if worked < 8:
            double += 2 * rate
        else:
            double += 3 * rate
        if hour >= 22:
            double += 4
    return double // 2
""",
    ),
    stateful(
        "Wallet",
        "dates_money",
        "An account in whole cents that starts empty or with a balance. deposit and withdraw return the new "
        "balance; an amount that is not positive, or a withdrawal of more than is there, is a ValueError.",
        lambda r: r.choice(((), (1,), (4,))),
        lambda r: [("deposit", (r.randint(1, 5),)), *_transactions(r)],
        '''
class Wallet:
    """An account in whole cents."""

    def __init__(self, cents=0):
        self.cents = cents

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.cents += amount
        return self.cents

    def withdraw(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        if amount > self.cents:
            raise ValueError("not enough money")
        self.cents -= amount
        return self.cents

    def balance(self):
        return self.cents
''',
    ),
)
