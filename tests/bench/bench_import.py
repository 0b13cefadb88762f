"""What the plugin adds to ``import verl``: fresh processes with and without it, alternating, medians compared.

    python tests/bench/bench_import.py [--pairs N]

Exit status 1 when the difference of the medians exceeds the goal of 0.3 s.
"""

import argparse
import os
import statistics
import subprocess
import sys

GOAL = 0.3  # seconds
CODE = "import time; start = time.perf_counter(); import verl; print(time.perf_counter() - start)"
POLICIES = {"with": "auto", "without": "none"}


def import_seconds(policy: str, platform: str) -> float:
    """Seconds of ``import verl`` in a fresh process."""
    environ = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": policy, "VERL_PLATFORM": platform}
    done = subprocess.run([sys.executable, "-c", CODE], env=environ, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    """Measure, print a table, compare with the goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5, help="processes with and without the plugin, each")
    pairs = parser.parse_args().pairs
    worst = 0.0
    for name, platforms in (
        ("VERL_PLATFORM unset", {"with": "", "without": ""}),
        ("VERL_PLATFORM=cpu", {"with": "cpu", "without": ""}),  # without the plugin verl knows no platform 'cpu'
    ):
        import_seconds("none", "")  # warm the page cache
        seconds: dict[str, list[float]] = {"with": [], "without": []}
        for pair in range(pairs):
            order = ("with", "without") if pair % 2 else ("without", "with")
            for variant in order:
                seconds[variant].append(import_seconds(POLICIES[variant], platforms[variant]))
        medians = {variant: statistics.median(times) for variant, times in seconds.items()}
        paired = statistics.median(w - wo for w, wo in zip(seconds["with"], seconds["without"], strict=True))
        difference = medians["with"] - medians["without"]
        worst = max(worst, difference)
        print(
            f"{name}: with {medians['with']:.2f} s, without {medians['without']:.2f} s, "
            f"difference {difference:+.2f} s (median of pairs {paired:+.2f} s), {pairs} processes each",
            flush=True,
        )
    print(f"goal: at most {GOAL} s more: {'met' if worst <= GOAL else 'MISSED'}")
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
