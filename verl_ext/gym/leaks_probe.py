"""Looks around where a policy's code runs; sent there as if it were a solution. See :mod:`verl_ext.gym.leaks`.

Standard library only. It runs alone, before any code of a policy, so its answers are not a policy's. It looks for the
task's own package: a repository or a cache of others gives nothing away.
"""

import glob
import importlib.machinery
import os
import sys
import zipfile

_MOST, _MOST_FILES = 20, 5_000
_OURS = "verl_ext"  # its catalogue has the repaired functions
_CACHES = (".cache/pip", ".cache/uv", ".cache/pypoetry", "wheelhouse", "wheels")
_LIBRARIES = ("/usr/lib/python3*", "/usr/local/lib/python3*", "/opt/*/lib/python3*", "/packages")


def importable(names: list) -> list:
    """Which of ``names`` can be imported, though no file of the task is here."""
    here = os.path.realpath(os.getcwd())
    path = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    others = [finder for finder in sys.meta_path if finder is not importlib.machinery.PathFinder]
    found = []
    for name in names:
        specs = [finder.find_spec(name, None) for finder in others]
        specs.append(importlib.machinery.PathFinder.find_spec(name, path))
        found += [f"{name} ({spec.origin})" for spec in specs if spec is not None and spec.loader is not None]
    return found[:_MOST]


def copies(names: list) -> list:
    """Packages called ``names``, compiled or not, where packages are installed."""
    roots = {os.path.join(prefix, "lib/python3*") for prefix in (sys.prefix, sys.base_prefix)} | {*_LIBRARIES}
    ends = ("", "site-packages", "dist-packages")
    folders = {folder for root in roots for end in ends for folder in _glob(root, end)} | {*sys.path} - {os.getcwd()}
    found = set()
    for folder in folders:
        for name in names:
            for end in ("", ".py", "-*.*-info", ".*.so"):
                found.update(_glob(folder, glob.escape(name) + end))
            found.update(_glob(folder, f"__pycache__/{glob.escape(name)}.*"))
        found.update(_glob(folder, f"{_OURS}/gym"))
    return sorted(found)[:_MOST]


def readable(paths: list) -> list:
    """Which of ``paths`` are there and open to this process."""
    return [path for path in paths if _opens(path)][:_MOST]


def histories(names: list) -> list:
    """Version control's folders around here, and those of the task's package or ours, two levels below the root."""
    folder, found = os.getcwd(), set()
    while True:
        found.update(_glob(folder, ".git"))
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    for pattern in ("/*/.git", "/*/*/.git", "/home/*/*/.git"):
        for path in filter(_opens, glob.glob(pattern)):
            tree = os.path.dirname(path)
            if any(_glob(tree, f"{sub}{glob.escape(name)}{end}")
                   for name in (*names, _OURS) for sub in ("", "src/") for end in ("", ".py")):  # fmt: skip
                found.add(path)
    return sorted(found)[:_MOST]


def wheels(names: list) -> list:
    """Archives of the task's package or ours, in the usual places and in the caches of package tools."""
    wanted = {*names, _OURS}
    homes = {os.path.expanduser("~"), "/root", *glob.glob("/home/*"), "/", "/opt", "/tmp", "/var/tmp", os.getcwd()}
    files = [path for home in homes for path in _glob(home, "*") if os.path.isfile(path)]
    for cache in {path for home in homes for end in _CACHES for path in _glob(home, end)}:
        files += [os.path.join(folder, name) for folder, _, inside in os.walk(cache) for name in inside]
    return sorted(path for path in files[:_MOST_FILES] if _holds(path, wanted))[:_MOST]


def _holds(path: str, wanted: set) -> bool:
    name = os.path.basename(path)
    if name.endswith((".whl", ".tar.gz", ".egg")) and name.partition("-")[0].replace(".", "_") in wanted:
        return True
    try:
        if not zipfile.is_zipfile(path):  # also a wheel without its name, as pip's cache has them
            return False
        with zipfile.ZipFile(path) as archive:
            return any(entry.partition("/")[0].removesuffix(".py") in wanted for entry in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _glob(folder: str, end: str) -> list:
    return [path for path in glob.glob(os.path.join(folder, end).rstrip("/")) if _opens(path)]


def _opens(path: str) -> bool:
    """By trying: where Landlock isolates, or another user's files lie, the name can be seen and nothing be read."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
