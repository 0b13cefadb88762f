"""Arithmetic on a few integers: limits, digits, divisors, sums of series."""

from verl_ext.gym.program import Program, function, ints, near


def _function(name, issue, args, source) -> Program:
    return function(name, "numeric", issue, args, source)


def _weighted(r):
    count = r.randint(1, 4)
    return ints(r, -3, 9, count, count), ints(r, 0, 3, count, count - (r.random() < 0.2))


def _bounded(r):
    """A value on, beside or away from the limits of a range, which may be empty or reversed."""
    low = r.randint(-3, 4)
    high = low + r.choice((-1, 0, 1, 3, 5))
    return near(r, low, high, r.randint(-6, 9)), low, high


def _sides(r):
    a, b = r.randint(0, 6), r.randint(1, 6)
    return a, b, r.choice((a, b, a + b, a + b - 1, r.randint(1, 6), 0))


PROGRAMS: tuple[Program, ...] = (
    _function(
        "clamp",
        "Limit value to the closed range from low to high. A range with low above high is a ValueError.",
        _bounded,
        '''
def clamp(value, low, high):
    """Limit value to the closed range from low to high."""
    if low > high:
        raise ValueError("low is above high")
    if value < low:
        return low
    if value > high:
        return high
    return value
''',
    ),
    _function(
        "digit_sum",
        "Sum the decimal digits of number; the sign does not matter.",
        lambda r: (r.choice((near(r, 0, 10), r.randint(-99, 99), r.randint(-999, 999), r.randint(-99999, 99999))),),
        '''
def digit_sum(number):
    """Sum the decimal digits of number."""
    rest = abs(number)
    total = 0
    while rest > 0:
        total += rest % 10
        rest = rest // 10
    return total
''',
    ),
    _function(
        "greatest_common_divisor",
        "Return the largest positive integer that divides both a and b, and 0 when both are 0.",
        lambda r: (r.choice((0, 1, r.randint(-30, 60))), r.choice((0, 7, r.randint(-30, 60)))),
        '''
def greatest_common_divisor(a, b):
    """Return the largest positive integer that divides both a and b."""
    a = abs(a)
    b = abs(b)
    while b != 0:
        a, b = b, a % b
    return a
''',
    ),
    _function(
        "is_prime",
        "Tell whether number is prime.",
        lambda r: (r.choice((r.randint(0, 4), near(r, 1, 2), near(r, 9, 25, 49), r.randint(-1, 130))),),
        '''
def is_prime(number):
    """Tell whether number is prime."""
    if number < 2:
        return False
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True
''',
    ),
    _function(
        "collatz_steps",
        "Count the steps of the Collatz sequence from start until it reaches 1: halve an even number, otherwise "
        "triple it and add one. A start below 1 is a ValueError.",
        lambda r: (r.choice((r.randint(-1, 3), r.randint(2, 60), r.randint(2, 60))),),
        """
def collatz_steps(start):
    if start < 1:
        raise ValueError("start must be positive")
    steps = 0
    value = start
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    return steps
""",
    ),
    _function(
        "count_divisors",
        "Count the positive divisors of a positive number, 1 and the number itself included.",
        lambda r: (r.choice((r.randint(1, 4), r.choice((9, 16, 36)), r.randint(3, 60), r.randint(3, 90))),),
        """
def count_divisors(number):
    count = 0
    for candidate in range(1, number + 1):
        if number % candidate == 0:
            count += 1
    return count
""",
    ),
    _function(
        "integer_root",
        "Return the largest integer whose square is not above number. A negative number is a ValueError.",
        lambda r: (r.choice((r.randint(-1, 3), near(r, 4, 9, 16, 25, 36, 49, 64), r.randint(0, 150))),),
        '''
def integer_root(number):
    """Return the largest integer whose square is at most number."""
    if number < 0:
        raise ValueError("negative number")
    low = 0
    high = number
    while low < high:
        middle = (low + high + 1) // 2
        if middle * middle <= number:
            low = middle
        else:
            high = middle - 1
    return low
''',
    ),
    _function(
        "sum_of_multiples",
        "Add up all the numbers from 1 up to but not including limit that are multiples of first or of second.",
        lambda r: (near(r, 10, 12, 15, 1, r.randint(2, 40)), r.randint(2, 6), r.randint(2, 7)),
        """
def sum_of_multiples(limit, first, second):
    total = 0
    for number in range(1, limit):
        if number % first == 0 or number % second == 0:
            total += number
    return total
""",
    ),
    _function(
        "round_half_up",
        "Divide total by parts and round to the nearest integer, halves upward, with integers only. Zero parts "
        "are a ZeroDivisionError.",
        lambda r: (r.randint(-20, 40), r.choice((2, 2, 4, 3, 5, 10, 0))),
        '''
def round_half_up(total, parts):
    """Divide and round to the nearest integer, halves upward."""
    quotient = total // parts
    remainder = total % parts
    if remainder * 2 >= parts:
        quotient += 1
    return quotient
''',
    ),
    _function(
        "fibonacci_number",
        "Return the Fibonacci number with the given index, where index 0 gives 0 and index 1 gives 1. "
        "A negative index is a ValueError.",
        lambda r: (r.choice((r.randint(-2, 2), r.randint(0, 40), r.randint(2, 40))),),
        """
def fibonacci_number(index):
    if index < 0:
        raise ValueError("negative index")
    before = 0
    current = 1
    for _ in range(index):
        before, current = current, before + current
    return before
""",
    ),
    _function(
        "prime_factors",
        "List the prime factors of number in ascending order, each as often as it divides the number. Numbers "
        "below 2 have none.",
        lambda r: (r.choice((r.randint(0, 4), r.choice((8, 9, 12, 49, 64)), r.randint(2, 130), r.randint(20, 300))),),
        """
def prime_factors(number):
    factors = []
    divisor = 2
    rest = number
    while divisor * divisor <= rest:
        while rest % divisor == 0:
            factors.append(divisor)
            rest = rest // divisor
        divisor += 1
    if rest > 1:
        factors.append(rest)
    return factors
""",
    ),
    _function(
        "weighted_mean_floor",
        "Return the mean of values weighted by weights, rounded down. Lists of different length or weights that "
        "add up to zero are a ValueError.",
        _weighted,
        """
def weighted_mean_floor(values, weights):
    if len(values) != len(weights):
        raise ValueError("lengths differ")
    total = 0
    weight_sum = 0
    for value, weight in zip(values, weights):
        total += value * weight
        weight_sum += weight
    if weight_sum == 0:
        raise ValueError("no weight")
    return total // weight_sum
""",
    ),
    _function(
        "reverse_digits",
        "Reverse the decimal digits of number and keep its sign, so -120 becomes -21.",
        lambda r: (r.choice((r.randint(-2, 2), 10, -120, r.randint(-999, 999), r.randint(-99999, 99999))),),
        """
def reverse_digits(number):
    sign = 1
    if number < 0:
        sign = -1
    rest = abs(number)
    result = 0
    while rest:
        result = result * 10 + rest % 10
        rest //= 10
    return sign * result
""",
    ),
    _function(
        "power_mod",
        "Raise base to a non-negative exponent modulo modulus by repeated squaring.",
        lambda r: (r.randint(0, 12), r.randint(0, 13), r.choice((1, 2, 7, 10, 97))),
        """
def power_mod(base, exponent, modulus):
    result = 1 % modulus
    factor = base % modulus
    while exponent > 0:
        if exponent % 2 == 1:
            result = result * factor % modulus
        factor = factor * factor % modulus
        exponent = exponent // 2
    return result
""",
    ),
    _function(
        "triangle_kind",
        "Classify a triangle by its three sides as equilateral, isosceles or scalene, and as invalid when a side "
        "is not positive or two sides together are not longer than the third.",
        _sides,
        '''
def triangle_kind(a, b, c):
    """Classify a triangle by its sides."""
    small, middle, large = sorted((a, b, c))
    if small <= 0 or small + middle <= large:
        return "invalid"
    if small == large:
        return "equilateral"
    if small == middle or middle == large:
        return "isosceles"
    return "scalene"
''',
    ),
)
