"""What the plugin adds to ``import verl``: fresh processes with and without it, alternating.

    python tests/bench/bench_import.py [--pairs N]

Exit status 1 when the median of the pairs' differences (wall-clock) exceeds the goal of 0.3 s.
"""

import argparse
import os
import statistics
import subprocess
import sys

GOAL = 0.3  # seconds
CODE = "import time; start = time.perf_counter(); import verl; print(time.perf_counter() - start, time.process_time())"
POLICIES = {"with": "auto", "without": "none"}


def import_seconds(policy: str, platform: str) -> tuple[float, float]:
    """Wall-clock seconds of ``import verl`` in a fresh process, and the CPU seconds of that process."""
    environ = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": policy, "VERL_PLATFORM": platform}
    done = subprocess.run([sys.executable, "-c", CODE], env=environ, capture_output=True, text=True, check=True)
    wall, cpu = done.stdout.split()[-2:]
    return float(wall), float(cpu)


def difference(seconds: dict[str, list[float]]) -> float:
    """Median over pairs of with minus without: neighbours in time share the machine's load."""
    return statistics.median(w - wo for w, wo in zip(seconds["with"], seconds["without"], strict=True))


def main() -> int:
    """Measure, print a table, compare with the goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7, help="processes with and without the plugin, each")
    pairs = parser.parse_args().pairs
    worst = 0.0
    for name, platforms in (
        ("VERL_PLATFORM unset", {"with": "", "without": ""}),
        ("VERL_PLATFORM=cpu", {"with": "cpu", "without": ""}),  # without the plugin verl knows no platform 'cpu'
    ):
        import_seconds("none", "")  # warm the page cache
        wall: dict[str, list[float]] = {"with": [], "without": []}
        cpu: dict[str, list[float]] = {"with": [], "without": []}
        for pair in range(pairs):
            for variant in ("with", "without") if pair % 2 else ("without", "with"):
                seconds = import_seconds(POLICIES[variant], platforms[variant])
                wall[variant].append(seconds[0])
                cpu[variant].append(seconds[1])
        worst = max(worst, difference(wall))
        print(f"{name}, {pairs} processes each", flush=True)
        for clock, seconds_of in (("wall", wall), ("CPU", cpu)):
            medians = {variant: statistics.median(values) for variant, values in seconds_of.items()}
            print(
                f"  {clock}: with {medians['with']:.2f} s, without {medians['without']:.2f} s (medians); "
                f"median of the pairs' differences {difference(seconds_of):+.2f} s",
                flush=True,
            )
    print(f"goal: at most {GOAL} s more: {'met' if worst <= GOAL else 'MISSED'}")
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
