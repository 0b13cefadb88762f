"""Text: counting, trimming, compressing, comparing."""

from verl_ext.gym.program import Program, function, word, words


def _function(name, issue, args, source) -> Program:
    return function(name, "strings", issue, args, source)


def _pair(r):
    """Two words that often are equal, or share a prefix or a letter count."""
    first = word(r, "abc", 6)
    letters = list(first)
    other = first[:-1] + r.choice("abc")
    r.shuffle(letters)
    return first, r.choice((first, first[:-1], other, first + word(r, "abc", 2), "".join(letters), word(r, "abc", 6)))


def _mirrored(r):
    """A text that often reads the same in both directions, but for case, spaces and at times one letter."""
    half = word(r, "abAB ,1", 4)
    text = half + r.choice(("", "b", "-", "c ")) + half[::-1].swapcase()
    if text and r.random() < 0.4:
        index = r.randrange(len(text))
        text = text[:index] + r.choice("abc2") + text[index + 1 :]
    return (text,)


def _same_length(r):
    """Two words, as a rule of the same length."""
    length = r.randint(0, 6)
    return word(r, "ab", length, length), word(r, "ab", length, length if r.random() < 0.9 else 0)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "is_palindrome",
        "Tell whether text reads the same in both directions when everything but letters and digits is ignored, "
        "and upper and lower case are the same.",
        _mirrored,
        '''
def is_palindrome(text):
    """Tell whether text reads the same in both directions."""
    letters = [c.lower() for c in text if c.isalnum()]
    left = 0
    right = len(letters) - 1
    while left < right:
        if letters[left] != letters[right]:
            return False
        left += 1
        right -= 1
    return True
''',
    ),
    _function(
        "run_length_encode",
        "Compress runs of equal letters to the letter and its count, so aaab becomes a3b1.",
        lambda r: (word(r, "abc", 8),),
        """
def run_length_encode(text):
    if not text:
        return ""
    parts = []
    current = text[0]
    count = 1
    for char in text[1:]:
        if char == current:
            count += 1
        else:
            parts.append(current + str(count))
            current = char
            count = 1
    parts.append(current + str(count))
    return "".join(parts)
""",
    ),
    _function(
        "common_prefix",
        "Return the longest text that both words start with.",
        _pair,
        """
def common_prefix(first, second):
    length = 0
    limit = min(len(first), len(second))
    while length < limit and first[length] == second[length]:
        length += 1
    return first[:length]
""",
    ),
    _function(
        "caesar_shift",
        "Shift each lower-case letter by key places in the alphabet, round from z to a; leave other characters.",
        lambda r: (word(r, "abyz -", 7), r.choice((0, 1, -1, 25, 26, 27, r.randint(-30, 30)))),
        '''
def caesar_shift(text, key):
    """Shift each lower-case letter by key places in the alphabet."""
    result = ""
    for char in text:
        if "a" <= char <= "z":
            place = (ord(char) - ord("a") + key) % 26
            result += chr(ord("a") + place)
        else:
            result += char
    return result
''',
    ),
    _function(
        "count_vowels",
        "Count the vowels a, e, i, o and u in text, in upper and lower case.",
        lambda r: (word(r, "aEiouxYzB", 9),),
        """
def count_vowels(text):
    total = 0
    for char in text.lower():
        if char in "aeiou":
            total += 1
    return total
""",
    ),
    _function(
        "are_anagrams",
        "Tell whether two words consist of the same letters, each the same number of times.",
        _pair,
        """
def are_anagrams(first, second):
    if len(first) != len(second):
        return False
    counts = {}
    for char in first:
        counts[char] = counts.get(char, 0) + 1
    for char in second:
        if counts.get(char, 0) == 0:
            return False
        counts[char] -= 1
    return True
""",
    ),
    _function(
        "truncate_text",
        "Shorten text to at most width characters. Text that is too long ends in two dots, which count towards "
        "the width; a width below 3 simply cuts the text.",
        lambda r: (word(r, "abcdef", 8, 1), r.choice((2, 3, 3, 4, r.randint(0, 8)))),
        '''
def truncate_text(text, width):
    """Shorten text to at most width characters."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    return text[:width - 2] + ".."
''',
    ),
    _function(
        "title_words",
        "Write each word with a capital first letter, except a, of, the and in where they are not the first word; "
        "the case of the other letters becomes lower, and words are separated by one space.",
        lambda r: (" ".join(r.choice(("the", "OF", "cat", "hOUSE", "in", "a", " x")) for _ in range(r.randint(0, 5))),),
        """
def title_words(text):
    small = {"a", "of", "the", "in"}
    result = []
    for index, word in enumerate(text.lower().split()):
        if index > 0 and word in small:
            result.append(word)
        else:
            result.append(word[0].upper() + word[1:])
    return " ".join(result)
""",
    ),
    _function(
        "hamming_distance",
        "Count the positions at which two texts of equal length differ. Texts of different length are a ValueError.",
        _same_length,
        """
def hamming_distance(first, second):
    if len(first) != len(second):
        raise ValueError("lengths differ")
    distance = 0
    for a, b in zip(first, second):
        if a != b:
            distance += 1
    return distance
""",
    ),
    _function(
        "wrap_words",
        "Break the words of a text into lines of at most width characters. A word that is longer than width "
        "stands alone on its line.",
        lambda r: (" ".join(words(r, "ab", 7, 0, 5)), r.randint(2, 9)),
        '''
def wrap_words(text, width):
    """Break the words of a text into lines of at most width characters."""
    lines = []
    line = ""
    for word in text.split():
        if not line:
            line = word
        elif len(line) + 1 + len(word) <= width:
            line = line + " " + word
        else:
            lines.append(line)
            line = word
    if line:
        lines.append(line)
    return lines
''',
    ),
    _function(
        "count_occurrences",
        "Count how often pattern occurs in text, overlaps included. An empty pattern occurs nowhere.",
        lambda r: (word(r, "ab", 9), word(r, "ab", 3)),
        """
def count_occurrences(text, pattern):
    if pattern == "":
        return 0
    count = 0
    for start in range(len(text) - len(pattern) + 1):
        if text[start:start + len(pattern)] == pattern:
            count += 1
    return count
""",
    ),
    _function(
        "snake_to_camel",
        "Turn a name in snake_case into camelCase: the first part stays as it is, each later part gets a capital. "
        "Empty parts vanish.",
        lambda r: (word(r, "ab_c_", 8),),
        """
def snake_to_camel(name):
    parts = [part for part in name.split("_") if part]
    if not parts:
        return ""
    result = parts[0]
    for part in parts[1:]:
        result += part[0].upper() + part[1:]
    return result
""",
    ),
    _function(
        "first_unique_char",
        "Return the index of the first character that occurs exactly once in text, or -1.",
        lambda r: (word(r, "abc", 7),),
        """
def first_unique_char(text):
    counts = {}
    for char in text:
        counts[char] = counts.get(char, 0) + 1
    for index, char in enumerate(text):
        if counts[char] == 1:
            return index
    return -1
""",
    ),
    _function(
        "strip_margin",
        "Remove from the lines of a text the spaces that all lines with content share at their start. Lines of "
        "spaces only become empty.",
        lambda r: ("\n".join(" " * r.randint(0, 3) + r.choice(("", "x", "yz")) for _ in range(r.randint(1, 4))),),
        '''
def strip_margin(text):
    """Remove the indentation that all lines share."""
    lines = text.split("\\n")
    margin = None
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if margin is None or indent < margin:
            margin = indent
    result = []
    for line in lines:
        if line.strip():
            result.append(line[margin:])
        else:
            result.append("")
    return "\\n".join(result)
''',
    ),
)
