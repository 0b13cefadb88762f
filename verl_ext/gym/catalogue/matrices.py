"""Lists of rows: transposing, walking, multiplying, neighbours on a board."""

from verl_ext.gym.program import Program, function


def _function(name, issue, args, source) -> Program:
    return function(name, "matrices", issue, args, source)


def _matrix(r, rows=None, columns=None, low=-3, high=5):
    rows = r.randint(1, 4) if rows is None else rows
    columns = r.randint(1, 4) if columns is None else columns
    return [[r.randint(low, high) for _ in range(columns)] for _ in range(rows)]


def _square(r, low=-2, high=4):
    count = r.randint(1, 4)
    return _matrix(r, count, count, low, high)


def _maybe_symmetric(r):
    matrix = _square(r, 0, 2)
    if r.random() < 0.7:
        matrix = [[matrix[min(y, x)][max(y, x)] for x in range(len(matrix))] for y in range(len(matrix))]
    if r.random() < 0.3:
        matrix[-1][0] += 1
    return (matrix,)


def _factors(r):
    inner = r.randint(1, 3)
    return _matrix(r, columns=inner), _matrix(r, rows=inner if r.random() < 0.85 else inner + 1)


def _grid_and_cell(r):
    grid = _matrix(r, low=0, high=1)
    return grid, r.randrange(len(grid)), r.randrange(len(grid[0]))


def _staircase(r):
    """A matrix with ascending rows and columns, and a value to look for."""
    rows, columns = r.randint(1, 4), r.randint(1, 4)
    matrix = [[0] * columns for _ in range(rows)]
    for y in range(rows):
        for x in range(columns):
            floor = max(matrix[y - 1][x] if y else 0, matrix[y][x - 1] if x else 0)
            matrix[y][x] = floor + r.randint(1, 2)
    return matrix, r.choice((r.choice(r.choice(matrix)), r.randint(0, 9), matrix[0][-1], matrix[-1][0]))


def _board(r):
    """A noughts-and-crosses board, often with a full line."""
    cells = [r.choice("xo.") for _ in range(9)]
    if r.random() < 0.75:
        diagonals = ((0, 4, 8), (2, 4, 6))
        line = r.choice(((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), *diagonals * 3))
        mark = r.choice("xoxo.")
        for index in line:
            cells[index] = mark
        cells[r.choice(line)] = r.choice((mark, mark, "."))
    return (["".join(cells[start : start + 3]) for start in (0, 3, 6)],)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "transpose_matrix",
        "Turn the rows of a matrix into columns.",
        lambda r: (_matrix(r, rows=r.randint(0, 4)),),
        """
def transpose_matrix(matrix):
    if not matrix:
        return []
    result = []
    for column in range(len(matrix[0])):
        result.append([row[column] for row in matrix])
    return result
""",
    ),
    _function(
        "rotate_clockwise",
        "Rotate a matrix by a quarter turn clockwise.",
        lambda r: (_matrix(r, low=0, high=9),),
        """
def rotate_clockwise(matrix):
    height = len(matrix)
    width = len(matrix[0])
    result = []
    for x in range(width):
        row = []
        for y in range(height - 1, -1, -1):
            row.append(matrix[y][x])
        result.append(row)
    return result
""",
    ),
    _function(
        "matrix_product",
        "Multiply two matrices. When the columns of the first are not as many as the rows of the second, that is "
        "a ValueError.",
        _factors,
        '''
def matrix_product(first, second):
    """Multiply two matrices."""
    if len(first[0]) != len(second):
        raise ValueError("shapes differ")
    result = []
    for row in first:
        line = []
        for column in range(len(second[0])):
            total = 0
            for index in range(len(second)):
                total += row[index] * second[index][column]
            line.append(total)
        result.append(line)
    return result
''',
    ),
    _function(
        "diagonal_difference",
        "Return the absolute difference between the sums of the two diagonals of a square matrix.",
        lambda r: (_square(r),),
        """
def diagonal_difference(matrix):
    size = len(matrix)
    down = 0
    up = 0
    for index in range(size):
        down += matrix[index][index]
        up += matrix[index][size - 1 - index]
    return abs(down - up)
""",
    ),
    _function(
        "spiral_order",
        "List the values of a matrix in a clockwise spiral that starts at the top left.",
        lambda r: (_matrix(r, r.randint(1, 5), r.randint(1, 5), 0, 9),),
        '''
def spiral_order(matrix):
    """List the values of a matrix in a clockwise spiral."""
    result = []
    top = 0
    left = 0
    bottom = len(matrix) - 1
    right = len(matrix[0]) - 1
    while top <= bottom and left <= right:
        for x in range(left, right + 1):
            result.append(matrix[top][x])
        for y in range(top + 1, bottom + 1):
            result.append(matrix[y][right])
        if top < bottom and left < right:
            for x in range(right - 1, left - 1, -1):
                result.append(matrix[bottom][x])
            for y in range(bottom - 1, top, -1):
                result.append(matrix[y][left])
        top += 1
        left += 1
        bottom -= 1
        right -= 1
    return result
''',
    ),
    _function(
        "is_symmetric",
        "Tell whether a square matrix is equal to its mirror image at the main diagonal.",
        _maybe_symmetric,
        """
def is_symmetric(matrix):
    for y in range(len(matrix)):
        for x in range(y):
            if matrix[y][x] != matrix[x][y]:
                return False
    return True
""",
    ),
    _function(
        "count_live_neighbours",
        "Count the ones among the up to eight cells around the cell at the given row and column.",
        _grid_and_cell,
        '''
def count_live_neighbours(grid, row, column):
    """Count the ones around a cell."""
    count = 0
    for y in range(row - 1, row + 2):
        for x in range(column - 1, column + 2):
            if y == row and x == column:
                continue
            if y < 0 or y >= len(grid):
                continue
            if x < 0 or x >= len(grid[0]):
                continue
            count += grid[y][x]
    return count
''',
    ),
    _function(
        "row_with_most_ones",
        "Return the index of the row with the most ones, the first of several, or -1 when there are no ones at all.",
        lambda r: (_matrix(r, low=0, high=r.choice((0, 1, 1, 1))),),
        """
def row_with_most_ones(rows):
    best = -1
    most = 0
    for index, row in enumerate(rows):
        ones = row.count(1)
        if ones > most:
            most = ones
            best = index
    return best
""",
    ),
    _function(
        "saddle_points",
        "Return (row, column) of all values that are the largest of their row and the smallest of their column.",
        lambda r: (_matrix(r, low=0, high=3),),
        """
def saddle_points(matrix):
    points = []
    for y, row in enumerate(matrix):
        for x, value in enumerate(row):
            column = [line[x] for line in matrix]
            if value == max(row) and value == min(column):
                points.append((y, x))
    return points
""",
    ),
    _function(
        "search_sorted_matrix",
        "Find target in a matrix whose rows and columns ascend, walking from the top right corner; return (row, "
        "column) or None.",
        _staircase,
        '''
def search_sorted_matrix(matrix, target):
    """Find target in a matrix whose rows and columns ascend."""
    row = 0
    column = len(matrix[0]) - 1
    while row < len(matrix) and column >= 0:
        value = matrix[row][column]
        if value == target:
            return row, column
        if value > target:
            column -= 1
        else:
            row += 1
    return None
''',
    ),
    _function(
        "cheapest_grid_path",
        "Return the smallest sum on a way from the top left to the bottom right of a matrix, moving only right or "
        "down.",
        lambda r: (_matrix(r, low=0, high=6),),
        """
def cheapest_grid_path(costs):
    width = len(costs[0])
    best = [0] * width
    for y, row in enumerate(costs):
        for x in range(width):
            if y == 0 and x > 0:
                before = best[x - 1]
            elif x == 0:
                before = best[x]
            else:
                before = min(best[x - 1], best[x])
            best[x] = before + row[x]
    return best[-1]
""",
    ),
    _function(
        "board_winner",
        "Return the player, x or o, who fills a row, a column or a diagonal of a 3 by 3 board, or None.",
        _board,
        '''
def board_winner(rows):
    """Return who fills a row, a column or a diagonal."""
    lines = list(rows)
    for column in range(3):
        lines.append(rows[0][column] + rows[1][column] + rows[2][column])
    lines.append(rows[0][0] + rows[1][1] + rows[2][2])
    lines.append(rows[0][2] + rows[1][1] + rows[2][0])
    for line in lines:
        if line == "xxx" or line == "ooo":
            return line[0]
    return None
''',
    ),
)
