"""How much does each matrix of the linear network move its output in one step, and what of that survives training?

Hayou & Liu 2025 (paper A), theorem 1: after one step of SignSGD on f(x) = xᵀ E W (equation 2) the embedding's part of
the change of the output is δ̄_E = η_E σ_W √(d + 2 d (d−1) / (π m)) and the projection's, for token i, δ̄_W^i =
η_W σ_E √(d + (α_i²/ᾱ²) 2 d (d−1) / (π m)), under assumption 2 (E W − Z replaced by iid normals). The first is exact;
the second is not (`lvp.theory` has the exact form). Three regimes of vocabulary: m fixed, m = 8 d, m = 64 d.

Theorems 3 and 4, the covariances behind it, stand beside (`experiments.sign_moments`).

Beyond theory, with LVP's init and rates at m = 8 d: true one-hot targets in place of assumption 2, up to 20 steps,
Adam, cross-entropy. Do the powers of d survive? This is asked of the ratio to the exact form's one step: δ̄_W itself
follows no power in text, where the share of the most frequent token jumps about as m grows.

    python -m sweeps run feature_learning --tier laptop      2 CPU cores, two and a half minutes
"""

import re
from dataclasses import dataclass

import numpy as np

from experiments import sign_moments
from experiments.experiment import Calculation, CellLanes, Experiment
from lvp import analysis, theory
from lvp.analysis.claims import Claim, judge
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.data.tokens.tokenizers import SMALLEST
from lvp.errors import InputError
from lvp.training import DataConfig

THEOREM = "theorem 1"
GROWING = "m = 8 d"  # the regime in which the arms are trained
ARMS = {  # name → (optimizer, loss): true targets, LVP
    "sign, square": ("sign", "square"),
    "Adam, square": ("adam", "square"),
    "sign, cross-entropy": ("sign", "cross_entropy"),
    "Adam, cross-entropy": ("adam", "cross_entropy"),
}
LVP_POWER = {"embedding": -1.0, "top": -1.5}  # of η_E σ_W = d^(−1/2) d^(−1/2), of η_W σ_E = d^(−1) d^(−1/2)
ONE_STEP_PER_TRAINED = 8  # draws: powers of d need fewer than theorem 1's constant, and a trained draw is many steps
PARTS = {"embedding": "δ_E", "top": "δ_W, most frequent token", "rare": "δ_W, median token"}


@dataclass(frozen=True)
class Config:
    corpus: str = "zipf:1"  # whose token frequencies α; a text's are those of a BPE tokenizer of m tokens, 256 or more
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    fixed_vocab: int = 1024
    steps: tuple[int, ...] = (1, 2, 5, 20)
    rate: float = 0.2  # η of LVP, in the arms beyond theory: η_E = η d^(−1/2), η_W = η / d
    draws: int = 40  # of initialisation and signal
    largest: int = 16384  # vocabularies above it are left out
    seed: int = 0

    def __post_init__(self):
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise InputError(f"widths needs at least two whole numbers from 1 up, got {self.widths}")
        if self.draws < 2:
            raise InputError(f"draws must be at least 2, got {self.draws}")
        if not self.steps or min(self.steps) < 1:
            raise InputError(f"steps must be whole numbers from 1 up, got {self.steps}")
        for name in ("widths", "steps"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        if not any(regimes(self).values()):
            limits = f"{smallest(self)} ≤ m ≤ {self.largest}"
            raise InputError(f"widths, fixed_vocab and largest leave no regime two widths with {limits}")


def smallest(config: Config) -> int:
    """A text's vocabulary holds every byte; synthetic tokens are as many as asked for."""
    return 2 if config.corpus.partition(":")[0] == "zipf" else SMALLEST


def regimes(config: Config) -> dict[str, list[tuple[int, int]]]:
    """Name → (d, m) pairs: those of a usable m, and none where they are fewer than a power of d needs."""
    shapes = {
        f"m = {config.fixed_vocab}": [(d, config.fixed_vocab) for d in config.widths],
        GROWING: [(d, 8 * d) for d in config.widths],
        "m = 64 d": [(d, 64 * d) for d in config.widths],
    }
    least, most = smallest(config), config.largest
    usable = {name: [(d, m) for d, m in pairs if least <= m <= most] for name, pairs in shapes.items()}
    return {name: pairs if len(pairs) > 1 else [] for name, pairs in usable.items()}


TIERS = {
    "smoke": Config(widths=(8, 32, 64), fixed_vocab=256, draws=10, steps=(1, 5), largest=2048),
    "laptop": Config(widths=(16, 32, 64, 128, 256), draws=100, largest=8192),
    "gpu": Config(draws=100),
    "paper": Config(draws=400),
}


def cells(config: Config) -> list[CellLanes]:
    """A cell a shape: theorem 1's quantities, and at m = 8 d theorems 3 and 4 and every arm beyond theory."""
    found = []
    shared, data = {"draws": config.draws, "seed": config.seed}, DataConfig(config.corpus)
    for name, pairs in regimes(config).items():
        for d, m in pairs:
            arguments = shared | {"regime": name, "width": d, "vocab": m}
            theorem = Calculation(arguments, 8.0 * config.draws * d * m * m, data, m)
            arms = [THEOREM, *(sign_moments.ARMS if name == GROWING else ())]
            found.append(CellLanes(f"{name}, d {d}", theorem, [{"arm": arm} for arm in arms]))
            if name == GROWING:
                more = arguments | {"steps": list(config.steps), "rate": config.rate}
                cost = 8.0 * trained_draws(config.draws) * d * m * m * config.steps[-1]
                beyond = Calculation(more, cost, data, m)
                found.append(CellLanes(f"beyond, d {d}", beyond, [{"arm": arm} for arm in ARMS]))
    return found


def trained_draws(draws: int) -> int:
    """How many are trained in the arms beyond theory, where so many are taken one step."""
    return max(2, draws // ONE_STEP_PER_TRAINED)


def calculate(arguments, lane, dataset) -> dict:
    """Root mean squares of the parts with standard errors, and what the forms say."""
    import jax

    from lvp.theory import simulation

    d, m = arguments["width"], arguments["vocab"]
    alpha = np.sort(dataset.frequencies())[::-1]
    tokens = [0, m // 2]
    key = jax.random.key(arguments["seed"])
    if lane["arm"] == THEOREM:
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
    if lane["arm"] in sign_moments.ARMS:
        return sign_moments.calculate(arguments, lane["arm"], alpha, tokens)
    optimizer, loss = ARMS[lane["arm"]]
    parts = simulation.feature_components(
        key,
        d,
        alpha,
        learning_rate_embedding=arguments["rate"] * d**-0.5,
        learning_rate_output=arguments["rate"] / d,
        sigma_embedding=d**-0.5,
        sigma_output=d**-0.5,
        steps=tuple(arguments["steps"]),
        optimizer=optimizer,
        loss=loss,
        eps=1e-20,  # gradients are as small as α_i / m: Adam's usual 1e-8 would hold rare tokens still
        draws=trained_draws(arguments["draws"]),
        tokens=tokens,
    )
    outcome = {}
    for i, step in enumerate(arguments["steps"]):
        outcome |= {f"{k}_step{step}": v for k, v in _measured(parts, (i,)).items()}
    return outcome


def _measured(parts, at: tuple[int, ...]) -> dict[str, float]:
    """Part → its value, and its standard error under name_error."""
    found = {
        "embedding": parts.embedding.overall,
        "top": parts.projection.per_token,
        "rare": parts.projection.per_token,
    }
    index = {"embedding": at, "top": (*at, 0), "rare": (*at, 1)}
    out = {}
    for name, estimate in found.items():
        out[name] = float(np.asarray(estimate.mean)[index[name]])
        out[f"{name}_error"] = float(np.asarray(estimate.standard_error)[index[name]])
    return out


def rows_of(table, arm: str, regime: str):
    """The rows of one line of the figure, by width."""
    chosen = (table["lane.arm"] == arm) & (table["cell.arguments.regime"] == regime)
    return table[chosen].sort_values("cell.arguments.width")


def error_of(column: str) -> str:
    """The column of standard errors beside a column of values."""
    part, after, step = column.partition("_step")
    return f"{part}_error{after}{step}"


def power(widths, values, errors):
    """The power of d that values [W] with standard errors [W] follow."""
    return analysis.slope(widths, (values, errors / values))


def in_theorems_steps(table, config: Config, arm: str, part: str, step: int):
    """Widths [W], and a part after so many steps relative to theorem 1's one step (the exact form under LVP), with its
    standard errors: flat where the theorem's power of d survives."""
    width, column, form = "cell.arguments.width", f"{part}_step{step}", f"{part}_exact"
    # What has not run yet has no columns either.
    measured = rows_of(table, arm, GROWING).reindex(columns=[width, column, error_of(column)])
    rows = measured.merge(rows_of(table, THEOREM, GROWING).reindex(columns=[width, form]), on=width)
    unit = config.rate * rows[width] ** LVP_POWER[part] * rows[form]
    return tuple(np.asarray(x, float) for x in (rows[width], rows[column] / unit, rows[error_of(column)] / unit))


def one_step_power(rows, part: str):
    """That of a part after theorem 1's one step."""
    return power(rows["cell.arguments.width"], rows[part].to_numpy(), rows[error_of(part)].to_numpy())


def local_power(rows, column: str) -> float:
    """That of a closed form, by least squares."""
    logs = np.log(rows["cell.arguments.width"].to_numpy(float))
    return float(np.polyfit(logs, np.log(rows[column].to_numpy()), 1)[0])


def summary(table, config: Config) -> str:
    """Measured against exact and printed forms at the largest width; powers of d beside the forms'."""
    moments = sign_moments.lines({arm: rows_of(table, arm, GROWING) for arm in sign_moments.ARMS})
    blocks = _one_step_lines(table, config), moments, _beyond_lines(table, config)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _one_step_lines(table, config: Config) -> list[str]:
    lines = [
        f"{'regime':<12} {'part':<26} {'measured/exact':>15} {'measured/paper':>15} {'power of d':>22} {'exact':>6}"
    ]
    for regime, pairs in regimes(config).items():
        rows = rows_of(table, THEOREM, regime)
        if not pairs:
            lines.append(f"{regime:<12} left out: not two widths with {smallest(config)} ≤ m ≤ {config.largest}")
        if len(rows) < 2:
            continue
        last = rows.iloc[-1]
        for part, name in PARTS.items():
            ratios = [f"{last[part] / last[f'{part}_{form}']:.3f}" for form in ("exact", "paper")]
            measured, exact = in_words(one_step_power(rows, part)), local_power(rows, f"{part}_exact")
            lines.append(f"{regime:<12} {name:<26} {ratios[0]:>15} {ratios[1]:>15} {measured:>22} {exact:>6.2f}")
    return lines


def _beyond_lines(table, config: Config) -> list[str]:
    ends = sorted({config.steps[0], config.steps[-1]})
    columns = {(part, t): f"{PARTS[part].split(',')[0]} after {t}" for part in LVP_POWER for t in ends}
    lines = [
        f"beyond theorem 1 ({GROWING}, LVP, true targets), relative to its exact form's one step: power of d",
        f"{'arm':<22}" + "".join(f"{name:>24}" for name in columns.values()),
    ]
    for arm in ARMS:
        found = [in_theorems_steps(table, config, arm, part, t) for part, t in columns]
        if len(found[0][0]) > 1:
            lines.append(f"{arm:<22}" + "".join(f"{in_words(power(*points)):>24}" for points in found))
    return lines if len(lines) > 2 else []


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """The parts over d in three regimes, and beyond theory after the last step."""
    panels = [_one_step_panel(table, regime) for regime in regimes(config)]
    panels += [_beyond_panel(table, config, part) for part in LVP_POWER]
    return sheet(
        [panel for panel in panels if panel.series],
        title="What each matrix adds to the change of the linear network's output",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "$δ_E$: what moving the embedding changes, of the tokens that occur; $δ_W$: what moving the projection "
            "changes, of one token. Root mean square over logits, bars: standard errors over draws.",
            "Dashed: theorem 1, exact form. After each name: the power of d with its 95 % interval. "
            "In the lower row it is 0 where the theorem's own survives.",
        ],
    )


def _one_step_panel(table, regime: str) -> Panel:
    rows, series = rows_of(table, THEOREM, regime), []
    for part, name in PARTS.items() if len(rows) > 1 else ():
        x, label = rows["cell.arguments.width"], f"{_typeset(name)}: {in_words(one_step_power(rows, part))}"
        series.append(Series(label, x, rows[part], rows[error_of(part)], predicted=rows[f"{part}_exact"]))
    return Panel(f"Theorem 1, one step, {regime}", "width d", "change of a logit (η = σ = 1)", series)


def _beyond_panel(table, config: Config, part: str) -> Panel:
    series = []
    for arm in ARMS:
        widths, values, errors = in_theorems_steps(table, config, arm, part, config.steps[-1])
        if len(widths) > 1:
            series.append(Series(f"{arm}: {in_words(power(widths, values, errors))}", widths, values, errors))
    title = f"{_typeset(PARTS[part])}: {_steps(config)} of LVP,\ntrue targets, {GROWING}"
    return Panel(title, "width d", "change / theorem 1's one step", series)


def _steps(config: Config) -> str:
    return f"{config.steps[-1]} step{'s' * (config.steps[-1] > 1)}"


def _typeset(name: str) -> str:
    """δ with its index below."""
    return re.sub(r"δ_\w", r"$\g<0>$", name)


def claims(table, config: Config, context) -> list[Claim]:
    """Theorem 1 as printed and as exact, at the largest shape of m = 8 d; and whether LVP's balance survives."""
    shared = dict(context) | {"source": "Hayou & Liu 2025, theorem 1"}
    return _one_step_claims(table, shared) + _moment_claims(table, context) + _survival_claims(table, config, shared)


def _one_step_claims(table, shared) -> list[Claim]:
    projection = "one step of the projection changes"
    rows = rows_of(table, THEOREM, GROWING)
    return [
        _ratio_claim(rows, f"{statement} by {form_name}", part, form, note, shared)
        for statement, form_name, part, form, note in (
            ("one step of the embedding changes the output", "theorem 1's δ̄_E", "embedding", "paper", ""),
            (f"{projection} the most frequent token's output", "theorem 1's δ̄_W", "top", "paper", ""),
            (f"{projection} that output", "the exact form of δ̄_W", "top", "exact", ", κ_i = I_i for α_i²/Σα²"),
        )
    ]


def _ratio_claim(rows, statement: str, part: str, form: str, note: str, shared) -> Claim:
    """Is measured over predicted one, within 2 %, at the largest width?"""
    value, interval, where = None, None, ""
    if len(rows):
        last = rows.iloc[-1]
        value = last[part] / last[f"{part}_{form}"]
        half = 1.96 * last[error_of(part)] / last[f"{part}_{form}"]
        interval, where = (value - half, value + half), f"at d {last['cell.arguments.width']}, "
    return Claim(
        statement=statement,
        paper_value=1.0,
        value=value,
        interval=interval,
        verdict=judge(value, interval, claimed=(0.98, 1.02)),
        note=f"measured over predicted, within 2 %, {where}{GROWING}{note}",
        **shared,
    )


def _moment_claims(table, context) -> list[Claim]:
    made = []
    for column, (arm, name) in sign_moments.VARIANCES.items():
        shared = dict(context) | {"source": f"Hayou & Liu 2025, {arm}"}
        rows = rows_of(table, arm, GROWING)
        for form, says in (("paper", "as printed"), ("exact", "in its exact form")):
            if form == "paper" or arm == "theorem 4":  # theorem 3 is exact as printed
                statement = f"{name}: the variance of X is the theorem's, {says}"
                made.append(_ratio_claim(rows, statement, column, form, "", shared))
        value, interval = sign_moments.correlation(rows.iloc[-1], column) if len(rows) else (None, None)
        made.append(
            Claim(
                statement=f"{name}: the covariance of X is diagonal",
                paper_value=0.0,
                value=value,
                interval=interval,
                verdict=judge(value, interval, claimed=(-0.02, 0.02)),
                note=f"off-diagonal over diagonal, within 0.02, {GROWING}",
                **shared,
            )
        )
    return made


def _survival_claims(table, config: Config, shared) -> list[Claim]:
    return [
        _survival_claim(in_theorems_steps(table, config, arm, part, config.steps[-1]), arm, part, config, shared)
        for part in LVP_POWER
        for arm in ARMS
    ]


def _survival_claim(points, arm: str, part: str, config: Config, shared) -> Claim:
    fit = power(*points) if len(points[0]) > 2 else None
    value, interval = (fit.slope, fit.interval) if fit else (None, None)
    return Claim(
        statement=f"theorem 1's power of d under LVP at {GROWING} survives true targets and {_steps(config)}: "
        f"{PARTS[part]}, {arm}",
        paper_value=0.0,
        value=value,
        interval=interval,
        verdict=judge(value, interval, claimed=(-0.05, 0.05)),
        note="power of d relative to the exact form's, within 0.05; the theorem says it of one step under assumption 2",
        **shared,
    )


EXPERIMENT = Experiment(
    name="feature_learning",
    question="how much does each matrix of the linear network move its output, and what of that survives training?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    calculate=calculate,
    paper="Hayou & Liu 2025",
    answers=("theorem 1", "theorem 3", "theorem 4"),
)
