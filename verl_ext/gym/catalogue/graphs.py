"""Graphs as dicts of neighbour lists, grids, trees as nested tuples."""

from verl_ext.gym.program import Program, function, ordered, stateful


def _function(name, issue, args, source) -> Program:
    return function(name, "graphs", issue, args, source)


def _graph(r, nodes="abcde", share=0.3):
    """A directed graph on up to five nodes; every neighbour is a key too."""
    names = nodes[: r.randint(1, len(nodes))]
    return {a: [b for b in names if r.random() < share and (a != b or r.random() < 0.2)] for a in names}


def _acyclic(r):
    graph = {a: [b for b in list("abcde") if b > a and r.random() < 0.4] for a in "abcde"[: r.randint(1, 5)]}
    names = list(graph)
    return {a: [b for b in graph[a] if b in names] for a in r.sample(names, len(names))}


def _weighted(r):
    graph = _graph(r, share=0.45)
    return {a: {b: r.randint(1, 6) for b in out if a != b} for a, out in graph.items()}


def _with_ends(graph, r):
    names = sorted(graph)
    return graph, r.choice(names), r.choice(names)


def _edges(r):
    return [(r.randint(0, 5), r.randint(0, 5)) for _ in range(r.randint(0, 6))]


def _grid(r):
    width = r.randint(1, 4)
    return ["".join(r.choice("##.") for _ in range(width)) for _ in range(r.randint(0, 4))]


def _tree(r, depth=3):
    """A binary tree ``(value, left, right)`` or None."""
    if depth == 0 or r.random() < 0.25:
        return None
    return r.randint(0, 9), _tree(r, depth - 1), _tree(r, depth - 1)


def _search_tree(r):
    def build(values):
        if not values:
            return None
        root = r.randrange(len(values))
        return values[root], build(values[:root]), build(values[root + 1 :])

    values = sorted(r.sample(range(10), r.randint(0, 5))) if r.random() < 0.5 else ordered(r, 0, 3, 4, 2)
    return build(values) if r.random() < 0.85 else _tree(r)


PROGRAMS: tuple[Program, ...] = (
    _function(
        "reachable_nodes",
        "Return the set of nodes that can be reached from start, start included.",
        lambda r: _with_ends(_graph(r), r)[:2],
        '''
def reachable_nodes(graph, start):
    """Return the set of nodes that can be reached from start."""
    seen = {start}
    stack = [start]
    while stack:
        node = stack.pop()
        for neighbour in graph[node]:
            if neighbour not in seen:
                seen.add(neighbour)
                stack.append(neighbour)
    return seen
''',
    ),
    _function(
        "shortest_path_length",
        "Return the smallest number of edges on a way from start to goal, or -1 when there is no way.",
        lambda r: _with_ends(_graph(r), r),
        """
def shortest_path_length(graph, start, goal):
    distance = {start: 0}
    queue = [start]
    while queue:
        node = queue.pop(0)
        if node == goal:
            return distance[node]
        for neighbour in graph[node]:
            if neighbour not in distance:
                distance[neighbour] = distance[node] + 1
                queue.append(neighbour)
    return -1
""",
    ),
    _function(
        "cheapest_route",
        "Return the smallest total weight of a way from start to goal, or None. The graph maps each node to a "
        "dict of neighbours and weights.",
        lambda r: _with_ends(_weighted(r), r),
        """
def cheapest_route(graph, start, goal):
    cost = {start: 0}
    todo = [start]
    while todo:
        node = todo.pop(0)
        for neighbour, weight in graph[node].items():
            total = cost[node] + weight
            if neighbour not in cost or total < cost[neighbour]:
                cost[neighbour] = total
                todo.append(neighbour)
    return cost.get(goal)
""",
    ),
    _function(
        "topological_order",
        "Order the nodes so that every edge leads forward; of several that could come next the smallest does. A "
        "cycle is a ValueError.",
        lambda r: (r.choice((_acyclic(r), _acyclic(r), _acyclic(r), _graph(r))),),
        '''
def topological_order(graph):
    """Order the nodes so that every edge leads forward."""
    incoming = {node: 0 for node in graph}
    for targets in graph.values():
        for target in targets:
            incoming[target] += 1
    ready = [node for node in graph if incoming[node] == 0]
    order = []
    while ready:
        ready.sort()
        node = ready.pop(0)
        order.append(node)
        for target in graph[node]:
            incoming[target] -= 1
            if incoming[target] == 0:
                ready.append(target)
    if len(order) < len(graph):
        raise ValueError("the graph has a cycle")
    return order
''',
    ),
    _function(
        "count_components",
        "Count the connected parts of an undirected graph with the nodes 0 to count - 1 and the given edges; "
        "edges with a node outside of that range are ignored.",
        lambda r: (r.randint(0, 6), _edges(r)),
        """
def count_components(count, edges):
    label = list(range(count))
    for a, b in edges:
        if a >= count or b >= count:
            continue
        old = label[a]
        new = label[b]
        for node in range(count):
            if label[node] == old:
                label[node] = new
    return len(set(label))
""",
    ),
    _function(
        "has_cycle",
        "Tell whether the directed graph has a cycle.",
        lambda r: (r.choice((_acyclic(r), _graph(r, share=0.25))),),
        """
def has_cycle(graph):
    remaining = set(graph)
    changed = True
    while changed:
        changed = False
        for node in sorted(remaining):
            targets = [target for target in graph[node] if target in remaining]
            if not targets:
                remaining.remove(node)
                changed = True
    return len(remaining) > 0
""",
    ),
    _function(
        "in_degrees",
        "Return for each node of a directed graph the number of edges that lead to it.",
        lambda r: (_graph(r),),
        """
def in_degrees(graph):
    degrees = {}
    for node in graph:
        degrees[node] = 0
    for targets in graph.values():
        for target in targets:
            degrees[target] += 1
    return degrees
""",
    ),
    _function(
        "count_islands",
        "Count the islands of a map of text rows: cells marked # that touch along an edge belong together.",
        lambda r: (_grid(r),),
        '''
def count_islands(rows):
    """Count the groups of land cells that touch along an edge."""
    land = set()
    for y, row in enumerate(rows):
        for x, mark in enumerate(row):
            if mark == "#":
                land.add((x, y))
    islands = 0
    while land:
        islands += 1
        stack = [land.pop()]
        while stack:
            x, y = stack.pop()
            for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if cell in land:
                    land.remove(cell)
                    stack.append(cell)
    return islands
''',
    ),
    _function(
        "tree_depth",
        "Return the number of nodes on the longest way from the root of a binary tree to a leaf. A tree is None "
        "or a tuple of value, left and right tree.",
        lambda r: (_tree(r, 4),),
        """
def tree_depth(tree):
    if tree is None:
        return 0
    value, left, right = tree
    return 1 + max(tree_depth(left), tree_depth(right))
""",
    ),
    _function(
        "is_search_tree",
        "Tell whether a binary tree of value, left and right tree is a search tree: smaller values to the left, "
        "larger ones to the right, none twice.",
        lambda r: (_search_tree(r),),
        '''
def is_search_tree(tree, low=None, high=None):
    """Tell whether all values lie between low and high and in order."""
    if tree is None:
        return True
    value, left, right = tree
    if low is not None and value <= low:
        return False
    if high is not None and value >= high:
        return False
    return is_search_tree(left, low, value) and is_search_tree(right, value, high)
''',
    ),
    _function(
        "path_sums",
        "List the sums of the values on all ways from the root of a binary tree to a leaf, from left to right.",
        lambda r: (_tree(r),),
        """
def path_sums(tree, above=0):
    if tree is None:
        return []
    value, left, right = tree
    total = above + value
    if left is None and right is None:
        return [total]
    return path_sums(left, total) + path_sums(right, total)
""",
    ),
    stateful(
        "DisjointSets",
        "graphs",
        "Groups of the numbers 0 to count - 1, at first each alone. join merges two groups and tells whether they "
        "were apart, together asks, and groups counts them.",
        lambda r: (5,),
        lambda r: [
            r.choice((("join", pair), ("join", pair), ("together", pair), ("groups", ())))
            for pair in [(r.randint(0, 4), r.randint(0, 4)) for _ in range(r.randint(2, 8))]
        ],
        '''
class DisjointSets:
    """Groups of numbers that can be merged."""

    def __init__(self, count):
        self.parent = list(range(count))
        self.count = count

    def root(self, item):
        while self.parent[item] != item:
            item = self.parent[item]
        return item

    def join(self, a, b):
        a = self.root(a)
        b = self.root(b)
        if a == b:
            return False
        self.parent[a] = b
        self.count -= 1
        return True

    def together(self, a, b):
        return self.root(a) == self.root(b)

    def groups(self):
        return self.count
''',
    ),
)
