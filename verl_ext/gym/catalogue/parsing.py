"""Reading small notations: numbers, keys and values, brackets, versions, expressions."""

from verl_ext.gym.program import Program, function, ints, near, word, words


def _function(name, issue, args, source) -> Program:
    return function(name, "parsing", issue, args, source)


_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)


def _roman(r):
    numeral, number = (
        "",
        r.choice((r.randint(1, 20), r.choice((40, 90, 400, 900)), r.randint(1, 3999), r.randint(1, 399))),
    )
    for value, letters in _ROMAN:
        numeral, number = numeral + letters * (number // value), number % value
    return (numeral if r.random() < 0.9 else numeral + "Q",)


def _sums(r):
    """A list of numbers joined by operators."""
    tokens = [str(r.randint(0, 9))]
    for _ in range(r.randint(0, 4)):
        tokens += [r.choice("+-*"), str(r.randint(0, 12))]
    return (r.choice(("", " ")).join(tokens),)


def _postfix(r):
    """An expression in postfix notation, as a rule well-formed."""

    def build(depth):
        if depth == 0 or r.random() < 0.3:
            return [str(r.randint(0, 9))]
        return build(depth - 1) + build(depth - 1) + [r.choice("+-*")]

    tokens = build(3)
    return (" ".join(tokens[1:] if r.random() < 0.15 else tokens),)


def _brackets(r):
    text = ""
    for _ in range(r.randint(0, 3)):
        text = r.choice((f"({text})", f"[{text}]", text + "()", f"x{text}"))
    if text and r.random() < 0.45:
        index = r.randrange(len(text))
        text = text[:index] + r.choice(("", "(", "]", ")")) + text[index + 1 :]
    return (text,)


def _version(r):
    return ".".join(str(r.choice((0, 1, 2, 10))) for _ in range(r.randint(1, 4)))


def _versions(r):
    first = _version(r)
    pair = first, r.choice((first, first + ".0", first + ".1", _version(r), _version(r)))
    return r.choice((pair, pair[::-1]))


def _pattern(r):
    """A pattern and a text that it often fits."""
    pattern = word(r, "ab*?", 5)
    text = "".join(word(r, "ab", 2) if c == "*" else r.choice("ab") if c == "?" else c for c in pattern)
    return pattern, r.choice((text, text, text[1:], text + "a", word(r, "ab", 5)))


def _csv(r):
    return (",".join(r.choice(('"a,b"', '"a""b"', "cd", "", '""', "e f", '"x"')) for _ in range(r.randint(1, 4))),)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "parse_integer",
        "Read a whole number with an optional sign. Anything else, an empty text included, is a ValueError.",
        lambda r: (
            r.choice(("", "+", "-")) + r.choice((word(r, "0189", 4, 1), word(r, "0189", 4), word(r, "09-a ", 2))),
        ),
        '''
def parse_integer(text):
    """Read a whole number with an optional sign."""
    sign = 1
    digits = text
    if text[:1] == "-":
        sign = -1
        digits = text[1:]
    elif text[:1] == "+":
        digits = text[1:]
    if digits == "":
        raise ValueError("no digits")
    value = 0
    for char in digits:
        if char < "0" or char > "9":
            raise ValueError("not a digit")
        value = value * 10 + ord(char) - ord("0")
    return sign * value
''',
    ),
    _function(
        "parse_roman",
        "Read a Roman numeral: a smaller letter before a larger one counts negative. An unknown letter is a KeyError.",
        _roman,
        """
def parse_roman(numeral):
    worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    total = 0
    previous = 0
    for letter in reversed(numeral):
        value = worth[letter]
        if value < previous:
            total -= value
        else:
            total += value
        previous = max(previous, value)
    return total
""",
    ),
    _function(
        "parse_key_values",
        "Read settings like a=1;b=2 into a dict. Spaces around keys and values and empty parts do not matter, a "
        "later key wins, and a key without = gets the value yes.",
        lambda r: (
            ";".join(r.choice(("a=1", " b = 2 ", "a=3", "c", "", "b=x=y", "=5", " ")) for _ in range(r.randint(0, 4))),
        ),
        """
def parse_key_values(text):
    settings = {}
    for part in text.split(";"):
        part = part.strip()
        if not part:
            continue
        if "=" in part:
            place = part.index("=")
            key = part[:place].strip()
            settings[key] = part[place + 1:].strip()
        else:
            settings[part] = "yes"
    return settings
""",
    ),
    _function(
        "brackets_balanced",
        "Tell whether all round and square brackets in a text are closed in the right order; other characters do "
        "not matter.",
        _brackets,
        '''
def brackets_balanced(text):
    """Tell whether all brackets are closed in the right order."""
    pairs = {")": "(", "]": "["}
    stack = []
    for char in text:
        if char in "([":
            stack.append(char)
        elif char in pairs:
            if not stack or stack[-1] != pairs[char]:
                return False
            stack.pop()
    return len(stack) == 0
''',
    ),
    _function(
        "compare_versions",
        "Compare two dotted version numbers and return -1, 0 or 1; missing parts count as zero.",
        _versions,
        """
def compare_versions(first, second):
    a = [int(part) for part in first.split(".")]
    b = [int(part) for part in second.split(".")]
    for index in range(max(len(a), len(b))):
        left = a[index] if index < len(a) else 0
        right = b[index] if index < len(b) else 0
        if left < right:
            return -1
        if left > right:
            return 1
    return 0
""",
    ),
    _function(
        "evaluate_postfix",
        "Compute an expression in postfix notation with the operators +, - and *. Missing operands are an IndexError.",
        _postfix,
        '''
def evaluate_postfix(text):
    """Compute an expression in postfix notation."""
    stack = []
    for token in text.split():
        if token not in "+-*":
            stack.append(int(token))
            continue
        right = stack.pop()
        left = stack.pop()
        if token == "+":
            stack.append(left + right)
        elif token == "-":
            stack.append(left - right)
        else:
            stack.append(left * right)
    return stack[-1]
''',
    ),
    _function(
        "evaluate_sum",
        "Compute an expression of whole numbers with +, - and *, where * binds stronger. Spaces do not matter.",
        _sums,
        '''
def evaluate_sum(text):
    """Compute a sum of products."""
    total = 0
    sign = 1
    product = 1
    number = 0
    for char in text + "+":
        if char.isdigit():
            number = number * 10 + int(char)
        elif char == "*":
            product *= number
            number = 0
        elif char == "+" or char == "-":
            total += sign * product * number
            sign = 1 if char == "+" else -1
            product = 1
            number = 0
    return total
''',
    ),
    _function(
        "expand_ranges",
        "Expand page ranges like 1-3,7 into a list of numbers, in the order given; a reversed range is empty, and "
        "so is an empty text.",
        lambda r: (
            ",".join(
                r.choice((str(r.randint(0, 12)), f"{r.randint(0, 5)}-{r.randint(2, 7)}", "3-3"))
                for _ in range(r.randint(0, 3))
            ),
        ),
        """
def expand_ranges(text):
    numbers = []
    if not text:
        return numbers
    for part in text.split(","):
        if "-" in part:
            first, last = part.split("-")
            for number in range(int(first), int(last) + 1):
                numbers.append(number)
        else:
            numbers.append(int(part))
    return numbers
""",
    ),
    _function(
        "split_csv_line",
        "Split a line at its commas. A field in double quotes may contain commas, and two quotes inside of it "
        "stand for one.",
        _csv,
        '''
def split_csv_line(line):
    """Split a line at the commas outside of double quotes."""
    fields = []
    field = ""
    quoted = False
    index = 0
    while index < len(line):
        char = line[index]
        if quoted and char == '"' and line[index + 1:index + 2] == '"':
            field += char
            index += 1
        elif char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            fields.append(field)
            field = ""
        else:
            field += char
        index += 1
    fields.append(field)
    return fields
''',
    ),
    _function(
        "parse_numbers_or_default",
        "Turn each text into an integer. A text that is no number becomes the default.",
        lambda r: (
            [r.choice((str(r.randint(-9, 20)), "x", "", "1.5", " 4 ", "-")) for _ in range(r.randint(0, 5))],
            -1,
        ),
        """
def parse_numbers_or_default(texts, default):
    numbers = []
    for text in texts:
        try:
            number = int(text)
        except ValueError:
            number = default
        numbers.append(number)
    return numbers
""",
    ),
    _function(
        "format_thousands",
        "Write a whole number with a comma between groups of three digits, and its sign in front.",
        lambda r: (
            r.choice((near(r, 0), near(r, 1000, -1000, 10**6), r.randint(-2000, 2000), r.randint(-(10**7), 10**7))),
        ),
        """
def format_thousands(number):
    digits = str(abs(number))
    groups = []
    while len(digits) > 3:
        groups.insert(0, digits[-3:])
        digits = digits[:-3]
    groups.insert(0, digits)
    text = ",".join(groups)
    if number < 0:
        text = "-" + text
    return text
""",
    ),
    _function(
        "wildcard_match",
        "Tell whether a pattern fits the whole text, where ? stands for one character and * for any number of them.",
        _pattern,
        '''
def wildcard_match(pattern, text):
    """Tell whether the pattern fits the whole text."""
    if pattern == "":
        return text == ""
    if pattern[0] == "*":
        for skip in range(len(text) + 1):
            if wildcard_match(pattern[1:], text[skip:]):
                return True
        return False
    if text == "":
        return False
    if pattern[0] != "?" and pattern[0] != text[0]:
        return False
    return wildcard_match(pattern[1:], text[1:])
''',
    ),
    _function(
        "path_normalize",
        "Simplify a path with slashes: drop empty parts and single dots, and let two dots remove the part before, "
        "or nothing at the top. The result starts with a slash.",
        lambda r: ("/".join(r.choice(("a", "b", "..", ".", "")) for _ in range(r.randint(0, 6))),),
        """
def path_normalize(path):
    parts = []
    for part in path.split("/"):
        if part == "" or part == ".":
            continue
        if part == "..":
            if parts:
                parts.pop()
        else:
            parts.append(part)
    return "/" + "/".join(parts)
""",
    ),
    _function(
        "check_digit_valid",
        "Check a list of digits by the Luhn rule: from the right, every second digit is doubled and reduced by 9 "
        "when above 9, and the sum of all must be a multiple of 10. Fewer than two digits are not valid.",
        lambda r: (
            ints(r, 0, 9, 6)
            if r.random() < 0.4
            else r.choice(
                ([1, 8], [0, 0], [4, 2], [7, 9, 9, 2, 7, 3], [5, 9], [9, 1], [2, 6], [3, 5, 9], [0], [1, 0, 9])
            ),
        ),
        '''
def check_digit_valid(digits):
    """Check a list of digits by the Luhn rule."""
    if len(digits) < 2:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        if place % 2 == 1:
            digit = digit * 2
            if digit > 9:
                digit -= 9
        total += digit
    return total % 10 == 0
''',
    ),
    _function(
        "expand_abbreviations",
        "Replace each word that stands in the glossary by its meaning; a glossary entry may lead to another one.",
        lambda r: (words(r, "ab", 4, 0, 2), {"a": "b", "b": "ccc", "aa": "a", "ab": word(r, "xy", 3, 1)}),
        """
def expand_abbreviations(words, glossary):
    result = []
    for word in words:
        while word in glossary:
            word = glossary[word]
        result.append(word)
    return " ".join(result)
""",
    ),
)
