"""Rules of depth, batch, horizon, weight decay and ε: factors on a role's settings from a base size to a target size.

The rule of width and vocabulary is a table (`lvp.parametrization.rules`). The axes here add factors to it. You choose
a rule of each axis by name; "none" leaves an axis alone. Some combinations are refused. m_N, m_L, m_B and m_D are the
ratios target / base of width, depth (residual blocks), batch (tokens per step) and horizon (tokens of training). λ is
the decay of AdamW as PyTorch and optax define it: a step shrinks a parameter by rate · λ. A factor of 1 is not
listed.

| axis    | rule                      | factors                                                                      |
|---------|---------------------------|------------------------------------------------------------------------------|
| depth   | completep                 | residual branches m_L⁻¹; hidden and vector: ε m_L⁻¹                          |
| depth   | depth_mup                 | residual branches m_L^-1/2; hidden and vector: rate m_L^-1/2, ε m_L^-1/2     |
| batch   | sqrt                      | all rates √m_B; 1 − β₁ and 1 − β₂: m_B; all ε: m_B^-1/2                      |
| batch   | sqrt_rate                 | all rates √m_B                                                               |
| horizon | completed                 | all rates m_D^-1/2; 1 − β₁ and 1 − β₂: m_D⁻¹; all ε: √m_D                    |
| horizon | marin, marin_2            | all rates m_D^-0.2813, m_D^-0.395                                            |
| decay   | constant_timescale        | λ: (base rate / target rate) · (base steps / target steps), by role          |
| decay   | sqrt_width                | hidden: λ √m_N; other roles do not decay                                     |
| decay   | independent_inverse_width | independent λ: m_N⁻¹                                                         |
| epsilon | completep                 | hidden and vector: m_N⁻¹                                                     |
| epsilon | completed                 | embedding, position, hidden and vector: m_N⁻¹                                |

Sources:

- completep: Dey et al. 2025 (arXiv 2505.01618), Table 1 at α = 1, and the code of EleutherAI/nanoGPT-mup, branch
  completep. The table gives the final norm the base's settings. Here it takes the row of the role "vector", which has
  another ε, and under depth_mup another rate.
- depth_mup: the same table at α = 1/2, which is the depth-μP of Yang et al. 2023 (arXiv 2310.02244) for Adam.
- sqrt: Malladi et al. 2022 (arXiv 2205.10287), the square root scaling rule of Adam.
- sqrt_rate: nanochat (`scripts/base_train.py`) scales the rates alone.
- completed: Mlodozeniec et al. 2025 (arXiv 2512.22382, Complete(d)P), Table 1. The table was read in two independent
  public implementations, which agree. Complete(d)P as a whole is rule "mup" with depth "completep", batch "sqrt",
  horizon "completed", decay "constant_timescale" and epsilon "completed".
- marin, marin_2: fits of mixture-of-experts runs with AdamH and MuonH (marin-community/marin, `experiments/grug/moe`).
- constant_timescale: the timescale 1/(rate · λ) of AdamW's average stays the same fraction of training (Wang &
  Aitchison 2024, arXiv 2405.13698). nanochat's λ ∝ √B / D is the same rule under its rate ∝ √B.
- sqrt_width: Fan et al. 2025 (arXiv 2510.15262), abstract: λ ∝ √d for matrix-like parameters with a rate ∝ d⁻¹, and
  λ = 0 for vector-like parameters. In the terms of Yang et al. 2022, a vector-like parameter has one dimension that
  grows with the width. The embedding and the head are vector-like.
- independent_inverse_width: Qiu et al. 2025 (arXiv 2512.05620): a decay per step, independent of the rate, ∝ d⁻¹.

The factors on ε hold for parameters without a forward multiplier. A forward multiplier A makes the gradient A times as
large, and ε must follow. The factors of the axis epsilon therefore contain the ratio of the forward multipliers, under
"completed" also at the output. The λ of sqrt_width contains this ratio too.
The module uses no jax.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lvp.errors import InputError, unknown
from lvp.parametrization.published import MARIN
from lvp.parametrization.rules import ROLES, check_whole

BLOCKS = ("hidden", "vector")  # roles inside residual blocks


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its training.

    Raises:
      InputError: a size is not a whole number of at least 1 (vocab: 2); the error names it.
    """

    width: int  # of the residual stream
    vocab: int  # number of tokens
    depth: int | None = None  # number of residual blocks; None: unknown
    batch: int | None = None  # tokens per step; None: unknown
    tokens: int | None = None  # tokens of the whole training; None: unknown

    def __post_init__(self):
        for name, least in (("width", 1), ("vocab", 2), ("depth", 1), ("batch", 1), ("tokens", 1)):
            if getattr(self, name) is not None or name in ("width", "vocab"):
                object.__setattr__(self, name, check_whole(name, getattr(self, name), least))

    @property
    def steps(self) -> float | None:
        """Tokens over batch; None if one of them is unknown."""
        return None if self.batch is None or self.tokens is None else self.tokens / self.batch

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items() if value is not None)


@dataclass(frozen=True)
class Ratios:
    """Target size over base size; 1 for an axis whose sizes are unknown."""

    width: float = 1.0  # m_N
    depth: float = 1.0  # m_L
    batch: float = 1.0  # m_B
    tokens: float = 1.0  # m_D
    rates: Mapping[str, float] = field(default_factory=dict)  # role → target rate over base rate
    forward: Mapping[str, float] = field(default_factory=dict)  # role → ratio of the forward multipliers


@dataclass(frozen=True)
class Factors:
    """The factors of one axis. A role that is absent has the factor 1."""

    rate: Mapping[str, float] = field(default_factory=dict)  # role → factor on the learning rate
    decay: Mapping[str, float] = field(default_factory=dict)  # role → factor on λ
    epsilon: Mapping[str, float] = field(default_factory=dict)  # role → factor on Adam's ε
    beta: float = 1.0  # on 1 − β₁ and 1 − β₂
    branch: float = 1.0  # on the output of every residual branch


@dataclass(frozen=True)
class AxisRule:
    """A rule of one axis."""

    factors: Callable[[Ratios], Factors]  # of the ratios
    source: str  # paper or repository
    independent: bool = False  # the factors are for a λ that is a decay per step, independent of the rate


def _all(r: Ratios, factor: float) -> dict[str, float]:
    """The factor for every role, also for those that only a user's rule has."""
    return dict.fromkeys(r.forward or ROLES, factor)


def _branches(alpha: float) -> Callable[[Ratios], Factors]:
    """Table 1 of Dey et al. 2025: branches m_L^-α, rates m_L^(α−1), ε m_L^-α."""

    def factors(r: Ratios) -> Factors:
        scaled = r.depth**-alpha
        return Factors(
            rate=dict.fromkeys(BLOCKS, r.depth ** (alpha - 1)), epsilon=dict.fromkeys(BLOCKS, scaled), branch=scaled
        )

    return factors


def _sqrt_batch(r: Ratios) -> Factors:
    return Factors(rate=_all(r, r.batch**0.5), epsilon=_all(r, r.batch**-0.5), beta=r.batch)


def _completed_horizon(r: Ratios) -> Factors:
    return Factors(rate=_all(r, r.tokens**-0.5), epsilon=_all(r, r.tokens**0.5), beta=1 / r.tokens)


def _power_of_tokens(exponent: float) -> Callable[[Ratios], Factors]:
    return lambda r: Factors(rate=_all(r, r.tokens**exponent))


def _constant_timescale(r: Ratios) -> Factors:
    steps = r.tokens / r.batch
    return Factors(decay={role: 1 / (rate * steps) for role, rate in r.rates.items()})


def _sqrt_width(r: Ratios) -> Factors:
    return Factors(decay=_all(r, 0.0) | {"hidden": r.width**0.5 * r.forward["hidden"]})


def _completep_epsilon(r: Ratios) -> Factors:
    return Factors(epsilon={role: r.forward[role] / r.width for role in BLOCKS})


def _completed_epsilon(r: Ratios) -> Factors:
    lookups = {role: r.forward[role] / r.width for role in ("embedding", "position")}
    return Factors(epsilon=lookups | {"output": r.forward["output"]} | dict(_completep_epsilon(r).epsilon))


_NONE = AxisRule(lambda r: Factors(), "–")
_DEY = "Dey et al. 2025, Table 1"
_MLODOZENIEC = "Mlodozeniec et al. 2025, Table 1"
_FIRST, _SECOND = (law.exponents["tokens"] for law in MARIN)
AXES: Mapping[str, Mapping[str, AxisRule]] = {
    "depth": {
        "completep": AxisRule(_branches(1.0), f"{_DEY}, α = 1"),
        "depth_mup": AxisRule(_branches(0.5), f"Yang et al. 2023; {_DEY}, α = 1/2"),
        "none": _NONE,
    },
    "batch": {
        "none": _NONE,  # the leaderboard chose the default (docs/transfer.md)
        "sqrt": AxisRule(_sqrt_batch, "Malladi et al. 2022"),
        "sqrt_rate": AxisRule(lambda r: Factors(rate=_all(r, r.batch**0.5)), "nanochat, base_train.py"),
    },
    "horizon": {
        "none": _NONE,
        "completed": AxisRule(_completed_horizon, _MLODOZENIEC),
        "marin": AxisRule(_power_of_tokens(_FIRST), "marin, grug/moe, first fit"),
        "marin_2": AxisRule(_power_of_tokens(_SECOND), "marin, grug/moe, second fit"),
    },
    "decay": {
        "none": _NONE,
        "constant_timescale": AxisRule(_constant_timescale, "Wang & Aitchison 2024; Complete(d)P; nanochat"),
        "sqrt_width": AxisRule(_sqrt_width, "Fan et al. 2025"),
        "independent_inverse_width": AxisRule(
            lambda r: Factors(decay=_all(r, 1 / r.width)), "Qiu et al. 2025", independent=True
        ),
    },
    "epsilon": {
        "none": _NONE,
        "completep": AxisRule(_completep_epsilon, _DEY),
        "completed": AxisRule(_completed_epsilon, _MLODOZENIEC),
    },
}
"""Axis → name → rule. The first rule of an axis is its default."""

SIZES = {"depth": "depth", "batch": "batch", "horizon": "tokens"}  # axis → the field of `Shape` that moves it


def chosen(axes: Mapping[str, str] | None) -> dict[str, str]:
    """The rule of every axis: the given names, and the first of `AXES` for the others.

    Raises:
      InputError: an axis or a rule is unknown; `axes` is not a mapping.
    """
    given: Mapping[Any, Any] = {} if axes is None else axes
    if not isinstance(given, Mapping):
        raise InputError(f"axes must map axes to rules, such as {{'depth': 'completep'}}, got {axes!r}")
    for axis, name in given.items():
        if axis not in AXES:
            raise unknown("axis", axis, AXES)
        if name not in AXES[axis]:
            raise unknown(f"rule of axis {axis}", name, AXES[axis])
    return {axis: given.get(axis, next(iter(rules))) for axis, rules in AXES.items()}


def ratio(base: Shape, target: Shape, axis: str, name: str, required: bool) -> float:
    """Target over base size of an axis in `SIZES`; 1 if a size is unknown and no rule needs it.

    Args:
      base, target: the sizes.
      axis: one of `SIZES`.
      name: the axis' rule.
      required: True if the caller named the rule, so that both sizes must be known.

    Raises:
      InputError: the rule is not "none", and one of the two sizes is unknown, or both are unknown and required.
    """
    size = SIZES[axis]
    old, new = getattr(base, size), getattr(target, size)
    if old is not None and new is not None:
        return new / old
    if name != "none" and (required or (old, new) != (None, None)):
        missing = "base" if old is None else "target"
        raise InputError(f"{axis} rule {name!r} needs {missing}.{size}: give it, or use axes={{{axis!r}: 'none'}}")
    return 1.0


def check_beta(name: str, beta: float, factor: float) -> float:
    """1 − factor · (1 − β), the momentum after a change of 1 − β.

    Raises:
      InputError: β is outside [0, 1), or the result is below 0, at which the rule has no meaning.
    """
    if isinstance(beta, bool) or not 0 <= beta < 1:
        raise InputError(f"{name} must lie in [0, 1), got {beta!r}")
    moved = beta if factor == 1 else 1 - factor * (1 - beta)
    if moved < 0:
        raise InputError(
            f"{name} {beta:g} becomes {moved:.3g}, because the rules of batch and horizon multiply 1 − {name} by "
            f"{factor:.4g}: use a smaller batch, or batch rule 'sqrt_rate'"
        )
    return moved
