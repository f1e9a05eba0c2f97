"""The calculation of one run of `feature_learning`."""

import numpy as np

from lvp import theory
from lvp.experiments.feature_learning import sign_moments
from lvp.experiments.feature_learning.config import GROUPS, THEOREM, trained_draws
from lvp.parametrization import table


def calculate(arguments, run, dataset) -> dict:
    """The outcome of a run.

    The group theorem 1 and the trained groups have the RMS of each part with its standard error. The group theorem 1
    also has the exact and the paper's form. The groups theorem 3 and theorem 4 have the moments of
    `sign_moments.calculate`.
    """
    import jax

    from lvp.theory import simulation

    d, m = arguments["width"], arguments["vocab"]
    alpha = np.sort(dataset.frequencies())[::-1]
    tokens = [0, m // 2]
    key = jax.random.key(arguments["seed"])
    if run["arm"] == THEOREM:
        parts = simulation.one_step_components(key, d, alpha, draws=arguments["draws"], tokens=tokens)
        outcome = _measured(parts, ())
        forms = {
            "embedding": [theory.embedding_component(d, m, 1.0, 1.0)] * 2,
            **{
                name: [theory.projection_component(d, 1.0, 1.0, alpha, exact=exact)[token] for exact in (True, False)]
                for name, token in (("top", tokens[0]), ("rare", tokens[1]))
            },
        }
        for name, (exact, paper) in forms.items():
            outcome |= {f"{name}_exact": float(exact), f"{name}_paper": float(paper)}
        return outcome
    if run["arm"] in sign_moments.GROUPS:
        return sign_moments.calculate(arguments, run["arm"], alpha, tokens)
    optimizer, loss = GROUPS[run["arm"]]
    rule_table = table("lvp", width=d, vocab=m)
    hidden = arguments["rate"] / d
    parts = simulation.feature_components(
        key,
        d,
        alpha,
        learning_rate_embedding=hidden * rule_table["embedding"].lr_multiplier,
        learning_rate_output=hidden * rule_table["output"].lr_multiplier,
        sigma_embedding=rule_table["embedding"].init_std,
        sigma_output=rule_table["output"].init_std,
        steps=tuple(arguments["steps"]),
        optimizer=optimizer,
        loss=loss,
        eps=1e-20,  # gradients are as small as α_i / m: with the usual 1e-8 Adam would not move rare tokens
        draws=trained_draws(arguments["draws"]),
        tokens=tokens,
    )
    outcome = {}
    for i, step in enumerate(arguments["steps"]):
        outcome |= {f"{k}_step{step}": v for k, v in _measured(parts, (i,)).items()}
    return outcome


def _measured(parts, at: tuple[int, ...]) -> dict[str, float]:
    """Part → value, and part_error → standard error, at an index of the leading axes."""
    estimates = {
        "embedding": parts.embedding.overall,
        "top": parts.projection.per_token,
        "rare": parts.projection.per_token,
    }
    index = {"embedding": at, "top": (*at, 0), "rare": (*at, 1)}
    values = {}
    for name, estimate in estimates.items():
        values[name] = float(np.asarray(estimate.mean)[index[name]])
        values[f"{name}_error"] = float(np.asarray(estimate.standard_error)[index[name]])
    return values
