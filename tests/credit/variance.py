"""How much noise each estimator has on the small MDPs, exactly: prints the table of docs/credit.md.

python -m tests.credit.variance [--n SESSIONS]
"""

import argparse

from tests.credit import mdp as small
from verl_ext.credit import gigpo, leave_one_out, potential

ESTIMATORS = {
    "gigpo": gigpo,
    "gigpo, visits=first": lambda table: gigpo(table, visits="first"),
    "gigpo, mean_std": lambda table: gigpo(table, episode_norm="mean_std", step_norm="mean_std"),
    "potential": potential,
    "potential, gamma=0.95": lambda table: potential(table, gamma=0.95),
    "potential, lam=0.8": lambda table: potential(table, lam=0.8),
}


def main() -> None:
    """Print relative variances as shares of the episode estimator's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4, help="sessions a group")
    n = parser.parse_args().n
    print(f"| {n} sessions a group | {' | '.join(mdp.name for mdp in small.ALL)} |")
    print("|---" * (len(small.ALL) + 1) + "|")
    policies = {mdp.name: small.logits(mdp) for mdp in small.ALL}
    episode = {mdp.name: small.moments(mdp, policies[mdp.name], n, leave_one_out).relative for mdp in small.ALL}
    print("| episode: variance / mean² |", " | ".join(f"{value:.1f}" for value in episode.values()), "|")
    for name, estimator in ESTIMATORS.items():
        shares = [
            small.moments(mdp, policies[mdp.name], n, estimator).relative / episode[mdp.name] for mdp in small.ALL
        ]
        print(f"| `{name}` |", " | ".join(f"{share:.2f}" for share in shares), "|")


if __name__ == "__main__":
    main()
