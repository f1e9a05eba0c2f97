"""Recommended learning rate and init of every role under a rule, with sources and measurements.

    from lvp.parametrization import Shape
    from lvp.parametrization.recommend import recommend

    advice = recommend(Shape(2048, 32064), 3e-4)  # tuned at this size
    advice = recommend(Shape(2048, 32064), 3e-3, base=Shape(256, 32064))  # tuned at width 256
    advice = recommend(Shape(2048, 32064, depth=24), 3e-3, base=Shape(256, 32064, depth=4))
    print(advice)
    advice["embedding"].learning_rate

The command line prints the same: `python -m lvp recommend --width 2048 --vocab 32064 --hidden-lr 3e-4`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from lvp import parametrization
from lvp.errors import InputError, shown, unknown
from lvp.parametrization import AXES, RULES, Shape, Table, evidence, report, row_multiplier, snippets
from lvp.parametrization.axes import SIZES, check_beta, chosen
from lvp.parametrization.rules import ADAM_RMS, PAPER_RULES, check_above_zero
from lvp.parametrization.scaling import LOOKUPS, Scaling, scale
from lvp.parametrization.tables import with_tied
from lvp.parametrization.token_frequencies import TokenFrequencies, token_frequencies

# Factors on LVP's embedding rate that are worth training next; docs/transfer.md has the ratios of tuned references.
SWEEP = (1.0, 4.0, 16.0)
TUNED_SWEEP = (0.5, 1.0, 2.0)  # factors on a tuned or published rate
MOVED = 2.0  # factor between the moved and the unchanged rate above which both are worth training
SHORT = 0.1  # part of the training below which the timescale of a decay is a warning
UNEQUAL = 4.0  # quotient of two roles' decays per step that is a warning
LARGE = 10.0  # quotient of an embedding's rate and its init std that is a warning
OPTIMIZERS = ("adamw", "muon")


@dataclass(frozen=True)
class RoleAdvice:
    """The recommended settings of a role."""

    role: str  # of `lvp.roles.ROLES`
    learning_rate: float  # in the unit of the optimizer
    base_learning_rate: float | None  # the smaller model's rate; None without transfer
    multiplier: float  # learning rate over the hidden rate, or over base_learning_rate
    formula: str  # of the multiplier, for width and vocabulary
    init_std: float  # 0 for vectors: gains start at 1, biases at 0
    init_formula: str  # of the init std
    decay: bool  # weight decay applies
    source: str  # paper and table of the learning rate
    forward_multiplier: float = 1.0  # constant factor on the parameter's output; for a tied matrix, on its rows
    head_multiplier: float = 1.0  # constant factor on the logits of a tied matrix
    epsilon: float = 1e-8  # ε of Adam, in the gradient's unit
    weight_decay: float | None = None  # λ; None without weight_decay
    decay_per_step: float | None = None  # fraction by which the parameter shrinks per step at this rate


@dataclass(frozen=True)
class Alternative:
    """The settings under one rule of one axis."""

    axis: str  # "width and vocab" or an axis of `lvp.parametrization.AXES`
    rule: str  # of this axis; all others stay as chosen
    chosen: bool  # this is the recommended rule
    refused: bool  # the rule does not go together with the other rules; all numbers are None
    source: str  # of the rule
    hidden_lr: float | None = None  # rate of the hidden matrices
    embedding_lr: float | None = None  # rate of the embedding
    hidden_decay: float | None = None  # factor on the λ of the hidden matrices
    hidden_epsilon: float | None = None  # factor on the ε of the hidden matrices
    beta: float | None = None  # factor on 1 − β₁ and 1 − β₂
    branch_multiplier: float | None = None  # factor on residual branches


@dataclass(frozen=True)
class Recommendation:
    """The result of `recommend`. `advice["embedding"]` is a `RoleAdvice`; `str(advice)` is a report.

    Attributes:
      rule, hidden_lr, embedding_lr, optimizer: the arguments.
      width, vocab: width and vocabulary of `target`.
      from_width, from_vocab: width and vocabulary of the smaller model; None without a transfer.
      kappa: κ of "interpolated", else None.
      roles: a `RoleAdvice` per role; "tied" in place of "embedding" and "output" for a tied model.
      table: the `lvp.parametrization.Table` in units of the hidden rate, for `lvp.optim.parametrized`.
      embedding_by_rule: the embedding's rate under each rule of `RULES` (all rules except "nanochat"), from the same
        arguments. The hidden rate is divided by the ratio of the two rules' forward multipliers on hidden matrices.
      evidence: `lvp.parametrization.evidence.transfer()`.
      beyond: for each result of `evidence`, the factor by which each size of `target` is outside of the measured range,
        such as {"width": 16.0, "vocab": 7.8}; 1.0 inside.
      base, target: the `Shape`s of a transfer; base is None without a transfer.
      axes: the rule of every axis other than width and vocabulary.
      betas: β₁ and β₂.
      steps: training steps, or None if unknown.
      weight_decay: the argument.
      tuned: the arguments b1, b2 and eps.
      alternatives: the settings under each rule of width and vocabulary, of each transferred axis, of "epsilon", and of
        "decay" if `weight_decay` is given. `chosen` marks the rule in use. Empty without a transfer.
      warnings: sentences about arguments that are probably wrong.
      tokens: statistics of the token counts, or None without counts.
      token_rows: how the embedding's rows enter the model, one of `lvp.parametrization.TOKEN_ROWS`.
      tied: True if one matrix is both embedding and head.
    """

    rule: str
    optimizer: str
    width: int
    vocab: int
    hidden_lr: float
    from_width: int | None
    from_vocab: int | None
    embedding_lr: float | None
    kappa: float | None
    roles: tuple[RoleAdvice, ...]
    table: Table
    embedding_by_rule: Mapping[str, float]
    evidence: Mapping[str, Mapping[str, Any]]
    beyond: Mapping[str, Mapping[str, float]]
    base: Shape | None
    target: Shape
    axes: Mapping[str, str]
    betas: tuple[float, float]
    steps: float | None
    weight_decay: float | None
    tuned: Mapping[str, float]
    alternatives: tuple[Alternative, ...]
    warnings: tuple[str, ...]
    tokens: TokenFrequencies | None = None
    token_rows: str = "plain"
    tied: bool = False

    def __getitem__(self, role: str) -> RoleAdvice:
        for advice in self.roles:
            if advice.role == role:
                return advice
        raise InputError(f"role must be one of {tuple(advice.role for advice in self.roles)}, not {role!r}")

    @property
    def embedding(self) -> RoleAdvice:
        """The settings of the embedding, or of the tied matrix."""
        return self["tied" if self.tied else "embedding"]

    @property
    def notes(self) -> tuple[str, ...]:
        """The rule's basis and limits."""
        return PAPER_RULES[self.rule].notes

    @property
    def embedding_was_tuned(self) -> bool:
        """True if the embedding's rate comes from a tuned rate of its own: the argument, or nanochat's."""
        return self.embedding_lr is not None or PAPER_RULES[self.rule].muon

    @property
    def adam_lr(self) -> float:
        """The rate of the hidden matrices in the unit of Adam's rate, from which the other roles' rates follow."""
        return self.embedding.learning_rate / self.table[self.embedding.role].lr_multiplier

    @property
    def rival(self) -> float | None:
        """Another embedding rate that is worth training after a transfer; None without one.

        It is the tuned rate of the smaller model, because the best rate of plain rows may not move at all. For rows
        times √d it moves as the hidden rate, because their best ratio of the two rates may not move
        (docs/embedding_rate.md). The rule's rate must differ from it by a factor above `MOVED`.
        """
        rate, small, hidden = self.embedding.learning_rate, self.embedding.base_learning_rate, self["hidden"]
        if small is None or hidden.base_learning_rate is None:
            return None
        if self.token_rows != "sqrt":
            return small if self.embedding_lr is not None and small > MOVED * rate else None
        kept = small * hidden.learning_rate / hidden.base_learning_rate
        return kept if rate > MOVED * kept and not self.tied and self.optimizer != "muon" else None

    @property
    def sweep(self) -> tuple[float, ...]:
        """Three embedding rates worth training next.

        They are `TUNED_SWEEP` times a tuned rate, or the rate of rows times √d, of a tied matrix or beside Muon. Other
        rates are `SWEEP` times LVP's rate. With a `rival`, they go from the smaller to the larger of it and the rule's.
        """
        rate = self.embedding.learning_rate
        if self.rival is not None:
            return min(rate, self.rival), math.sqrt(rate * self.rival), max(rate, self.rival)
        if self.embedding_was_tuned or self.tied or self.token_rows == "sqrt" or self.optimizer == "muon":
            return tuple(rate * factor for factor in TUNED_SWEEP)
        return tuple(self.embedding_by_rule["lvp"] * factor for factor in SWEEP)

    @property
    def moves_axes(self) -> bool:
        """True if the transfer moves more than width and vocabulary, so that `optim.transfer` is needed."""
        if self.base is None:
            return False
        sizes = any(getattr(self.base, size) != getattr(self.target, size) for size in SIZES.values())
        return sizes or any(self.axes[axis] != "none" for axis in ("decay", "epsilon"))

    @property
    def snippet(self) -> str:
        """Python code that defines the optimizer `tx` and the init stds by role, `init_std`; rates have six digits."""
        return snippets.snippet(self)

    def as_dict(self) -> dict[str, Any]:
        """The recommendation as JSON types."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "table"}
        values["roles"] = {advice.role: dataclasses.asdict(advice) for advice in self.roles}
        for name in ("tokens", "base", "target"):
            values[name] = None if values[name] is None else dataclasses.asdict(values[name])
        values["alternatives"] = [dataclasses.asdict(alternative) for alternative in self.alternatives]
        multiplier = {"branch_multiplier": self.table.branch_multiplier, "sweep": self.sweep}
        return values | multiplier | {"notes": self.notes, "snippet": self.snippet}

    def __str__(self) -> str:
        return report.text(self)

    def with_evidence(self) -> str:
        """`str`, and the sources, the other rules, the decay over the training and the committed measurements."""
        return report.text(self, evidence=True)


def recommend(
    target: Shape,
    hidden_lr: float,
    *,
    base: Shape | None = None,
    rule: str = "lvp",
    optimizer: str = "adamw",
    axes: Mapping[str, str] | None = None,
    embedding_lr: float | None = None,
    kappa: float | None = None,
    counts: ArrayLike | None = None,
    token_rows: str = "plain",
    tied: bool = False,
    steps: float | None = None,
    weight_decay: float | None = None,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Recommendation:
    """Returns the rate and init std of every role of a model of shape `target`, for Adam and Muon.

    Args:
      target: the sizes of the model.
      hidden_lr: the tuned rate of the hidden matrices, above zero, in the unit of the optimizer: of this model, or of
        the smaller model `base`.
      base: the sizes of the smaller model on which all settings were tuned; `lvp.parametrization.scaling.scale`
        transfers them. None: they were tuned on this model.
      rule: one of `PAPER_RULES`.
      optimizer: of the hidden matrices, one of `OPTIMIZERS`; AdamW trains the other roles. Under "muon", `hidden_lr` is
        the rate of `optax.contrib.muon` without `consistent_rms`, tuned at this size. The other roles' rates follow
        from hidden_lr / (0.2 √width), the rate of Adam that updates a width × width matrix by the same amount.
      axes: axis → rule, as in `scale`.
      embedding_lr: the tuned rate of the smaller model's embedding and learned positions; None takes the rule's.
      kappa: κ of "interpolated", in [0, 1], the same at both sizes.
      counts: whole numbers [n], n ≤ m: occurrences of each token, which give κ = Σ α_i κ_i and `Recommendation.tokens`.
      token_rows: one of `lvp.parametrization.TOKEN_ROWS`. It sets the embedding's forward multiplier. With "sqrt", the
        rule's rate is divided by √d, because the model sees each update √d times larger.
      tied: whether one matrix is both embedding and head, as in GPT-2 and Gemma.
      steps: training steps; None takes those of `target`.
      weight_decay: λ of AdamW as tuned, above zero; None is no decay.
      b1, b2, eps: β₁, β₂ and ε of Adam as tuned.

    Returns:
      A `Recommendation`; `print` shows it as a report.

    Raises:
      InputError: `target` or `base` is not a `Shape`; the optimizer is Muon and there is a base; a rule, an axis,
        optimizer or token_rows is unknown; a rate, λ or ε is not finite and above zero; β is outside [0, 1) at one of
        the sizes; κ is outside [0, 1] or given together with counts; counts are not whole numbers of at least 0, are
        all zero, or are more than the vocabulary; there is no base, and embedding_lr or a rule in `axes` is given;
        there is a decay rule and no weight_decay; a rule in `axes` needs a size that a shape does not have, or does not
        go together with `rule` (`lvp.parametrization.axes`).

    Example:
      >>> from lvp.parametrization import Shape
      >>> from lvp.parametrization.recommend import recommend
      >>> advice = recommend(Shape(width=1024, vocab=32064), 3e-3, base=Shape(width=64, vocab=32064))
      >>> round(advice["hidden"].learning_rate, 7), round(advice["embedding"].learning_rate, 7)
      (0.0001875, 0.006)
    """
    for name, shape in (("target", target), ("base", base)):
        if not isinstance(shape, Shape) and (shape is not None or name == "target"):
            raise InputError(f"{name} must be a lvp.parametrization.Shape(width=…, vocab=…), got {shown(shape)}")
    names = chosen(axes)
    if base is None and embedding_lr is not None:
        raise InputError(f"embedding_lr {embedding_lr!r} is a rate of the smaller model: give base (--from-width)")
    for axis, name in (axes or {}).items():
        if base is None and name != "none":
            raise InputError(f"rule {name!r} of axis {axis} needs a smaller model: give base (--from-width and others)")
    if names["decay"] != "none" and weight_decay is None:
        raise InputError(f"decay rule {names['decay']!r} needs weight_decay: give the value tuned on the smaller model")
    if steps is not None:
        check_above_zero("steps", steps)
    if optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    if optimizer == "muon" and base is not None:
        raise InputError(
            f"optimizer 'muon' with a smaller model is not measured: give Muon's rate tuned at width {target.width}, "
            "without base (--from-width)"
        )
    adam = {"b1": b1, "b2": b2, "eps": eps}
    asked = _Asked(
        rule, optimizer, kappa, base, target, hidden_lr, embedding_lr, token_rows, axes, weight_decay, adam, tied
    )
    return _recommended(asked, counts, target.steps if steps is None else steps)


def _recommended(asked: "_Asked", counts: ArrayLike | None, steps: float | None) -> Recommendation:
    asked.check()
    asked.roles()  # raises InputError for a wrong rule or size before the tokens are analysed
    scaling = asked.scaling()
    if scaling is not None and scaling.beta != 1.0 and PAPER_RULES[asked.rule].muon:
        raise InputError(
            f"the rules of batch and horizon multiply 1 − β₁ by {scaling.beta:.4g}, and Muon, which rule "
            f"{asked.rule!r} has for hidden matrices, has no β₁: choose rules that keep it, such as batch=sqrt_rate"
        )
    frequencies = _frequencies(counts, asked.target.vocab, asked.kappa)
    if frequencies is not None:
        asked = dataclasses.replace(asked, kappa=frequencies.kappa)
    base, target, table, roles = asked.base, asked.target, asked.table(), asked.roles()
    return Recommendation(
        rule=asked.rule,
        optimizer=asked.optimizer,
        width=target.width,
        vocab=target.vocab,
        hidden_lr=float(asked.hidden_lr),
        from_width=None if base is None else base.width,
        from_vocab=None if base is None else base.vocab,
        embedding_lr=None if asked.embedding_lr is None else float(asked.embedding_lr),
        kappa=table.kappa,
        roles=roles,
        table=table,
        embedding_by_rule={name: asked.under(name).without_decay().roles()[0].learning_rate for name in RULES},
        evidence=(transfer := evidence.transfer()),
        beyond=_beyond(target, transfer),
        base=base,
        target=target,
        axes=chosen(asked.axes),
        betas=asked.betas(),
        steps=steps,
        weight_decay=None if asked.weight_decay is None else float(asked.weight_decay),
        tuned=asked.adam,
        alternatives=_alternatives(asked),
        warnings=(*_warnings(asked, roles), *_changed_betas(asked), *_decays(asked, roles, steps)),
        tokens=frequencies,
        token_rows=asked.token_rows,
        tied=asked.tied,
    )


def _frequencies(counts, vocab: int, kappa) -> TokenFrequencies | None:
    if counts is None:
        return None
    if kappa is not None:
        raise InputError("kappa and counts both determine κ: pass only one of them")
    return token_frequencies(counts, vocab)


@dataclass(frozen=True)
class _Asked:
    """The arguments that decide the settings of the roles."""

    rule: str
    optimizer: str  # of the hidden matrices
    kappa: float | None
    base: Shape | None
    target: Shape
    hidden_lr: float  # in the unit of this optimizer
    embedding_lr: float | None
    token_rows: str
    axes: Mapping[str, str] | None
    weight_decay: float | None
    adam: Mapping[str, float]  # b1, b2 and eps
    tied: bool

    def check(self) -> None:
        """Checks the rule's name, the numbers and token_rows.

        Raises:
          InputError: the rule is not a name; a rate, λ or ε is not finite and above zero; token_rows is unknown.
        """
        if not isinstance(self.rule, str):
            raise InputError(f"rule must be a name, got {self.rule!r}; a function is accepted by optim.parametrized")
        row_multiplier(self.token_rows, 1)
        for name, rate in (("embedding_lr", self.embedding_lr), ("weight_decay", self.weight_decay)):
            if rate is not None:
                check_above_zero(name, rate)
        check_above_zero("hidden_lr", self.hidden_lr)
        check_above_zero("eps", self.adam["eps"])

    def under(self, rule: str) -> "_Asked":
        """Returns the arguments for another rule.

        The hidden rate is divided by the ratio of the rules' forward multipliers, so that both describe the same Adam
        run.
        """
        other = dataclasses.replace(self, rule=rule)
        shape = self.base or self.target
        factor = self.here(shape)["hidden"].forward_multiplier / other.here(shape)["hidden"].forward_multiplier
        return dataclasses.replace(other, hidden_lr=self.hidden_lr * factor)

    def without_decay(self) -> "_Asked":
        """Returns the arguments without rules of "decay" and "epsilon".

        Some rules of width refuse them. They do not change rates.
        """
        axes = {axis: name for axis, name in (self.axes or {}).items() if axis not in ("decay", "epsilon")}
        return dataclasses.replace(self, axes=axes)

    def scaling(self) -> Scaling | None:
        if self.base is None:
            return None
        return scale(self.base, self.target, self.rule, axes=self.axes, kappa=self.kappa, token_rows=self.token_rows)

    def here(self, shape: Shape) -> Table:
        """The table at a shape, in units of the hidden rate. The embedding's rate is for the rows as they enter."""
        size: dict[str, Any] = {"width": shape.width, "vocab": shape.vocab}
        made = parametrization.table(self.rule, **size, kappa=self.kappa, token_rows=self.token_rows)
        row = made["embedding"]
        return made.with_rows(dataclasses.replace(row, lr_multiplier=row.lr_multiplier / self.enlarged(shape)))

    @property
    def adam_lr(self) -> float:
        """The tuned rate of the hidden matrices in the unit of Adam's rate."""
        if self.optimizer != "muon" or PAPER_RULES[self.rule].muon:
            return self.hidden_lr
        return self.hidden_lr / (ADAM_RMS * math.sqrt((self.base or self.target).width))

    def enlarged(self, shape: Shape) -> float:
        """The factor by which the rows enlarge an update at the rule's rate; 1 if the embedding's rate was tuned."""
        tuned = self.embedding_lr is not None or PAPER_RULES[self.rule].muon
        return 1.0 if tuned else row_multiplier(self.token_rows, shape.width)

    def table(self) -> Table:
        """The table of this model in units of its hidden rate."""
        made, scaling = self.here(self.target), self.scaling()
        if scaling is not None:
            rates = {advice.role: advice.learning_rate for advice in self.untied_roles()}
            made = made.with_rows(
                *(dataclasses.replace(row, lr_multiplier=rates[row.role] / rates["hidden"]) for row in made.rows)
            )
            made = dataclasses.replace(made, branch_multiplier=scaling.branch_multiplier)
        return with_tied(made) if self.tied else made

    def betas(self) -> tuple[float, float]:
        b1, b2 = self.adam["b1"], self.adam["b2"]
        scaling = self.scaling()
        return (check_beta("b1", b1, 1.0), check_beta("b2", b2, 1.0)) if scaling is None else scaling.betas(b1, b2)

    def roles(self) -> tuple[RoleAdvice, ...]:
        """The settings of the model's roles, the embedding first."""
        embedding, *others = self.untied_roles()
        if not self.tied:
            return (embedding, *others)
        tied = dataclasses.replace(embedding, role="tied", head_multiplier=self.table()["tied"].head_multiplier)
        return (tied, *(advice for advice in others if advice.role != "output"))

    def untied_roles(self) -> tuple[RoleAdvice, ...]:
        """The settings of the roles of a model whose embedding and head are two matrices."""
        here, scaling = self.here(self.target), self.scaling()
        rates = {row.role: self.adam_lr * row.lr_multiplier for row in self.here(self.base or self.target).rows}
        if self.embedding_lr is not None:
            rates |= dict.fromkeys(LOOKUPS, self.embedding_lr)
        made = []
        for row in here.rows:
            formula = PAPER_RULES[self.rule].formulas[row.role]
            rows = " / √d" if row.role == "embedding" and self.enlarged(self.target) != 1.0 else ""
            factors = None if scaling is None else scaling[row.role]
            rate = rates[row.role] * (1.0 if factors is None else factors.rate)
            if row.role == "hidden" and self.optimizer == "muon":
                rate = self.hidden_lr
            decay = None if self.weight_decay is None else self.weight_decay * row.decay
            if factors is not None and decay is not None:
                decay *= factors.decay
            independent = scaling is not None and scaling.independent
            made.append(
                RoleAdvice(
                    role=row.role,
                    learning_rate=rate,
                    base_learning_rate=None if factors is None else rates[row.role],
                    multiplier=row.lr_multiplier if factors is None else factors.rate,
                    formula=formula.ratio + rows if factors is None else formula.move,
                    init_std=row.init_std,
                    init_formula=formula.init,
                    decay=row.decay,
                    source=formula.source,
                    forward_multiplier=row.forward_multiplier,
                    epsilon=self.adam["eps"] * (1.0 if factors is None else factors.epsilon),
                    weight_decay=decay,
                    decay_per_step=decay if independent or decay is None else decay * rate,
                )
            )
        return tuple(made)


def _alternatives(asked: _Asked) -> tuple[Alternative, ...]:
    """Returns the settings under each rule of each axis, as in `Recommendation.alternatives`."""
    if asked.base is None:
        return ()
    made = []
    for rule in dict.fromkeys((*RULES, asked.rule)):
        source = PAPER_RULES[rule].formulas["hidden"].source
        made.append(_alternative("width and vocab", rule, rule == asked.rule, source, asked.under(rule)))
    moved = [axis for axis, size in SIZES.items() if getattr(asked.target, size) is not None]
    moved += ["decay"] * (asked.weight_decay is not None) + ["epsilon"]
    for axis in moved:
        for name, axis_rule in AXES[axis].items():
            other = dataclasses.replace(asked, axes=dict(asked.axes or {}) | {axis: name})
            made.append(_alternative(axis, name, name == chosen(asked.axes)[axis], axis_rule.source, other))
    return tuple(made)


def _alternative(axis: str, rule: str, is_chosen: bool, source: str, other: _Asked) -> Alternative:
    try:
        scaling, roles = other.scaling(), other.roles()
    except InputError:
        return Alternative(axis, rule, is_chosen, True, source)
    assert scaling is not None
    hidden = scaling["hidden"]
    rates = (next(role for role in roles if role.role == "hidden").learning_rate, roles[0].learning_rate)
    factors = (hidden.decay, hidden.epsilon, scaling.beta, scaling.branch_multiplier)
    return Alternative(axis, rule, is_chosen, False, source, *rates, *factors)


def _warnings(asked: _Asked, roles: tuple[RoleAdvice, ...]) -> tuple[str, ...]:
    """Sentences about arguments that are probably wrong."""
    made = []
    for prefix, shape in (("", asked.target), ("from_", asked.base)):
        if shape is not None and shape.width > shape.vocab:
            made.append(
                f"{prefix}width {shape.width} is larger than {prefix}vocab {shape.vocab}: are they swapped? "
                "Language models have more tokens than entries of a row."
            )
    embedding, hidden = roles[0], next(advice for advice in roles if advice.role == "hidden")
    if (factor := asked.enlarged(shape := asked.base or asked.target)) != 1.0:
        made.append(
            f"the rule's embedding rate is for plain rows. Rows times √d enlarge every update √d = {factor:.4g} times "
            f"at width {shape.width}, and the best rates measured with them are about √d times smaller "
            "(docs/embedding_rate.md). So the rate above is divided by √d."
        )
    if asked.optimizer != "muon" and embedding.init_std and embedding.learning_rate >= LARGE * embedding.init_std:
        ratio = embedding.learning_rate / embedding.init_std
        made.append(
            f"{embedding.role} rate {embedding.learning_rate:.4g} is {ratio:.3g} times its init std "
            f"{embedding.init_std:.4g}: a step of Adam replaces a row. If {asked.hidden_lr:.4g} is Muon's rate, give "
            'optimizer="muon" (--optimizer muon).'
        )
    of_adam = asked.optimizer != "muon" and not PAPER_RULES[asked.rule].muon
    if of_adam and hidden.learning_rate >= hidden.init_std:
        ratio = hidden.learning_rate / hidden.init_std
        made.append(
            f"hidden rate {hidden.learning_rate:.4g} is {ratio:.3g} times the init std {hidden.init_std:.4g} of hidden "
            "matrices: a step of Adam replaces every weight. Hayou & Liu 2025 use 0.2/width = "
            f"{0.2 / asked.target.width:.2g}."
        )
    return tuple(made)


def _changed_betas(asked: _Asked) -> list[str]:
    """A warning if the rules of batch and horizon change β."""
    tuned, (b1, b2) = asked.adam, asked.betas()
    if (b1, b2) == (tuned["b1"], tuned["b2"]):
        return []
    changes = f"β₁ from {tuned['b1']:g} to {b1:.4g}, β₂ from {tuned['b2']:g} to {b2:.4g}"
    return [f"the rules of batch and horizon change {changes}."]


def _decays(asked: _Asked, roles: tuple[RoleAdvice, ...], steps: float | None) -> list[str]:
    """A warning if a decay forgets the training, or is much faster than that of hidden matrices."""
    shrinks = {role.role: role.decay_per_step for role in roles if role.decay_per_step}
    if not shrinks:
        return []
    fastest = max(shrinks, key=lambda name: shrinks[name])
    decays = {role.role: role.weight_decay for role in roles if role.weight_decay}
    shrink, text = shrinks[fastest], []
    if steps and shrink * steps * SHORT > 1:
        short: dict[str, list[str]] = {}  # timescale → roles
        for name in (name for name in shrinks if shrinks[name] * steps * SHORT > 1):
            short.setdefault(f"{1 / shrinks[name]:.3g}", []).append(name)
        times = " and ".join(f"{time} of {steps:.0f} steps for {', '.join(of)}" for time, of in short.items())
        text.append(f"weight decay {decays[fastest]:.4g} has a timescale of {times}.")
        if fastest == "embedding":  # a tied matrix has the head's gradient in every row
            left = (1 - min(shrink, 1.0)) ** steps
            text.append(f"The row of a token that never occurs keeps {left:.2g} of its size.")
    elif shrink >= UNEQUAL * shrinks["hidden"]:
        times = f"{1 / shrink:.3g} steps for {fastest} and {1 / shrinks['hidden']:.3g} for hidden matrices"
        text.append(f"weight decay {decays[fastest]:.4g} has a timescale of {times}.")
    if text and shrink > shrinks["hidden"]:
        # The code that is printed gives λ as tuned, and a decay rule multiplies it.
        moved = {} if (scaling := asked.scaling()) is None else {scaled.role: scaled.decay for scaled in scaling.roles}
        moved["tied"] = moved.get("embedding", 1.0)
        equal = {
            name: float(f"{value * shrinks['hidden'] / shrinks[name] / moved.get(name, 1.0):.3g}")
            for name, value in decays.items()
        }
        text.append(f"All matrices have the timescale of hidden matrices with weight_decay={equal} at these rates.")
    return [" ".join(text)] if text else []


def _beyond(target: Shape, results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The factor by which each known size is outside of the measured range; 1 inside."""
    known = {axis: value for axis, value in vars(target).items() if value is not None}

    def times(value: int, smallest: int, largest: int) -> float:
        return max(1.0, value / largest, smallest / value)

    return {
        name: {axis: times(value, *result["measured"][axis]) for axis, value in known.items()}
        for name, result in results.items()
    }
