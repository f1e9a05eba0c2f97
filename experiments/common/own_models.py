"""An experiment with a model of your own: the best learning rate by width under a rule of lvp.

The model is a pair of functions, of Flax Linen, NNX, Equinox or plain JAX, or a function that trains it outside of lvp.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp import analysis, optim, roles
from lvp.analysis import optimum_figure
from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_seeds, sorted_values
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.common.experiment import Calculation, Experiment, SettingRuns
from lvp.experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row, slope_line
from lvp.experiments.common.tables import losses_by_seed_and_rate, select
from lvp.models.configs import OMITTED
from lvp.parametrization import RULES, Rule, Table, table
from lvp.training import AnySetting, DataConfig, OptimizerConfig, Program, check_positive
from lvp.training.outcome import Outcome, curve
from lvp.training.tasks import LanguageTask


class Model(NamedTuple):
    """A language model of one width and vocabulary."""

    init: Callable[[jax.Array], Any]  # key → parameters, a pytree of arrays
    # (parameters, int32 tokens [batch, length]) → logits [batch, length, vocab]
    apply: Callable[[Any, jax.Array], jax.Array]
    declarations: Sequence[roles.Declaration] = ()  # of roles that the defaults do not find
    initialize: bool = True  # matrices are drawn with the stds of the rule (`lvp.optim.initialize`)


class Run(NamedTuple):
    """The settings of a run, for a function that trains a model by itself."""

    width: int
    learning_rate: float
    seed: int
    steps: int
    table: Table  # of the rule at this width and vocabulary: rates and init stds by role


@dataclass(frozen=True)
class Runs:
    """The runs of an experiment with a model of your own. `--set` changes any of these values.

    Raises:
      InputError: there are too few widths, rates or seeds, one of them occurs twice, a number is out of range, or
        `micro_batches` does not divide `batch`.
    """

    corpus: str = "python-docs"  # as in `lvp.data.load`
    slice_bytes: int | None = None  # length of the training text; None takes the whole split
    valid_bytes: int | None = None  # length of the validation text; None takes the whole split
    order: str = "windows"  # of the batches (`lvp.training.DataConfig.order`)
    rule: str = "lvp"  # one of `lvp.parametrization.RULES`, unless the experiment has a rule of its own
    widths: tuple[int, ...] = (32, 64, 128)
    base_width: int | None = None  # the rates are those of the hidden matrices at this width; None: at each width
    vocab: int = 512  # size of the tokenizer that is trained on the text
    rates: tuple[float, ...] = geometric(0.0005, 0.064, 8)  # learning rates (see base_width)
    seeds: tuple[int, ...] = (0, 1, 2)  # of init and data order
    context: int = 64  # tokens per row
    batch: int = 8  # rows per step
    steps: int = 600
    micro_batches: int = 1  # parts of a batch, for memory
    clip_norm: float | None = None  # largest norm of the gradient
    final_fraction: float = 0.1  # the train loss is the mean over this last part of the steps

    def __post_init__(self):
        check_seeds(self, "seeds")
        sorted_values(self, "widths", positive=True)
        sorted_values(self, "rates", least=3, positive=True)
        for name in ("vocab", "context", "batch", "steps"):
            check_count(self, name, least=2 if name == "vocab" else 1)
        if self.micro_batches < 1 or self.batch % self.micro_batches:
            raise InputError(f"micro_batches ({self.micro_batches}) must divide batch ({self.batch})")
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)

    def table(self, width: int, rule: Rule | None = None) -> Table:
        """The table of the rule at a width.

        Raises:
          InputError: the rule is unknown, or refuses the shape.
        """
        if rule is None and self.rule not in RULES:
            raise InputError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        return table(rule or self.rule, width=width, vocab=self.vocab, base_width=self.base_width)


ADAM = OptimizerConfig("adam")


def experiment(
    name: str,
    *,
    presets: Mapping[str, Runs],
    model: Callable[[int, int], Model] | None = None,
    train: Callable[[Run], Sequence[float]] | None = None,
    optimizer: OptimizerConfig = ADAM,
    rule: Rule | None = None,
    question: str = "does the best learning rate depend on the width?",
    claims: Callable[..., list] = lambda table, config, context: [],
) -> Experiment:
    """The experiment that trains a model at every width, rate and seed of a configuration.

    Args:
      name: of the experiment, in directories and records.
      presets: preset → `Runs`, or an instance of a subclass.
      model: (width, vocab) → `Model`. lvp trains it, in packs on a device, on the tokens of the corpus. Runs have
        checkpoints and records. The model applies the forward multipliers of the rule.
      train: `Run` → the training losses of all steps, in nats. The function trains one run by itself, with its own
        data, which no fingerprint covers. Runs have records and no checkpoints. Give either `model` or `train`.
      optimizer: the optimizer of `model`.
      rule: a rule of your own instead of `Runs.rule`.
      question, claims: as in `Experiment`.

    Raises:
      InputError: both `model` and `train` are given, or neither.
    """
    if (model is None) == (train is None):
        raise InputError("experiment needs either model or train, and got " + ("neither" if train is None else "both"))

    def settings(config: Runs) -> list[SettingRuns]:
        if train is not None and config.corpus != "own":
            raise InputError(f"corpus={config.corpus}: `train` of {name} reads data of its own; omit the corpus")
        planned = []
        for width in config.widths:
            of_width = config.table(width, rule)
            if train is not None:
                names = ("vocab", "base_width", "steps", "final_fraction")
                shared = {name: getattr(config, name) for name in names} | {"width": width, "rule": of_width.rule}
                flops = 6.0 * width**2 * config.steps * config.batch * config.context
                runs: list = [{"learning_rate": rate, "seed": seed} for rate in config.rates for seed in config.seeds]
                planned.append(SettingRuns(f"d {width}", Calculation(shared, flops), runs))
                continue
            shape = ModelConfig(width, config.vocab, config.context, of_width.rule, config.base_width, model, of_width)
            data = DataConfig(config.corpus, config.slice_bytes, config.valid_bytes, config.order)
            sizes = config.batch, config.steps, optimizer, config.final_fraction, config.clip_norm, config.micro_batches
            runs = [ModelRun(rate, seed) for rate in config.rates for seed in config.seeds]
            planned.append(SettingRuns(f"d {width}", ModelSetting(shape, data, *sizes), runs))
        return planned

    return Experiment(
        name=name,
        question=question,
        presets=presets if train is None else {p: replace(runs, corpus="own") for p, runs in presets.items()},
        settings=settings,
        summary=partial(summary, rule=rule),
        figure=figure,
        claims=claims,
        calculate=None if train is None else partial(_calculated, train, rule),
    )


# --- a model that lvp trains ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model and its rule. The function that makes it is not a field, since records hold JSON only."""

    width: int
    vocab: int
    context: int
    rule: str
    base_width: int | None
    make: InitVar[Any]  # (width, vocab) → Model
    of_rule: InitVar[Any]  # the `Table`

    def __post_init__(self, make, of_rule):
        object.__setattr__(self, "make", make)
        object.__setattr__(self, "table", of_rule)

    @cached_property
    def model(self) -> Model:
        return vars(self)["make"](self.width, self.vocab)

    @cached_property
    def num_params(self) -> int:
        shapes = jax.eval_shape(lambda: self.model.init(jax.random.key(0)))  # the key too, so that no device is used
        return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


@dataclass(frozen=True)
class ModelSetting(AnySetting):
    """The part of a run that is compiled."""

    model: ModelConfig
    data: DataConfig  # the text
    batch: int  # rows per step
    steps: int
    optimizer: OptimizerConfig
    final_fraction: float
    clip_norm: float | None = field(default=None, metadata=OMITTED)
    micro_batches: int = field(default=1, metadata=OMITTED)  # equal parts of a batch, computed one after the other
    measured_steps = ()
    probe_rows = 1  # of the data for measures, which these runs do not have

    def __post_init__(self):
        self.check_steps()

    def check(self, run: "ModelRun") -> None:
        """Accepts every run."""

    def task(self) -> "ModelTask":
        return ModelTask(self)

    def example_run(self) -> "ModelRun":
        return ModelRun(1.0, 0)

    @property
    def micro_batch_size(self) -> int:
        return self.batch // self.micro_batches

    @property
    def vocab(self) -> int:
        return self.model.vocab

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.model.context

    @property
    def flops_per_run(self) -> float:
        """Six FLOPs per parameter and token."""
        return 6.0 * self.num_params * self.tokens_per_run


@dataclass(frozen=True)
class ModelRun:
    """The traced numbers of one run."""

    learning_rate: float  # of the hidden matrices
    seed: int  # of init and data order

    def arrays(self) -> dict:
        """The run as the program takes it: scalars on the host."""
        return {"learning_rate": np.float32(self.learning_rate), "seed": np.uint32(self.seed)}


class ModelProgram(Program):
    """The program of a `ModelSetting`: that of a decoder with another model, init, loss and table."""

    def _model(self) -> Model:
        return self.setting.model.model

    def _rate(self, run):
        return run["learning_rate"]

    def _transformation(self, run):
        given = {"declarations": self.model.declarations}
        return self.setting.optimizer.transformation(self.setting.model.table, self._rate(run), {}, **given)

    def _init(self, run, params=None):
        init_key, drawn_key, data_key = jax.random.split(jax.random.key(run["seed"]), 3)
        if params is None:
            params = self.model.init(init_key)
            if self.model.initialize:
                declarations = self.model.declarations
                params = optim.initialize(self.setting.model.table, params, drawn_key, declarations=declarations)
        return self._initial_state(params, self._optimizer(run).init(params), data_key)

    def _loss(self, params, windows, weights=None, head=None):
        logits = self.model.apply(params, windows[:, :-1]).astype(jnp.float32)
        wanted = *windows[:, 1:].shape, self.setting.vocab
        if logits.shape != wanted:
            raise InputError(f"apply must return logits of shape {wanted} [batch, length, vocab], got {logits.shape}")
        losses = optax.losses.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:])
        return jnp.average(losses, weights=weights)


class ModelTask(LanguageTask):
    """A model of your own, trained on the tokens of a text."""

    setting: Any

    def program(self, runs: int = 1, mesh: Any = None) -> Any:
        return ModelProgram(self.setting, runs)

    def check_runs(self, runs: Iterable[Any]) -> None:
        """Traces a step.

        Raises:
          InputError: the model cannot be traced, or its logits have another shape. The message is one line.
        """
        program, run, width = self.program(), self.setting.example_run().arrays(), self.setting.model.width
        try:
            jax.eval_shape(program._step, np.int32(0), program.run_shapes(), run, self.data_shapes())
        except InputError as error:
            raise InputError(f"model of width {width}: {error}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(f"model of width {width} cannot be trained: {reason}") from error

    def check_mesh(self, sizes: Mapping[str, int]) -> None:
        raise InputError(f"mesh={dict(sizes)}: a model of your own is trained on one device; omit the mesh")


# --- a function that trains -------------------------------------------------------------------------------------------


def _calculated(train: Callable, rule: Rule | None, arguments: Mapping[str, Any], chosen: Mapping, _: Any) -> Outcome:
    """The outcome of a run that `train` trains."""
    width, vocab, base_width = (arguments[name] for name in ("width", "vocab", "base_width"))
    of_width = table(rule or arguments["rule"], width=width, vocab=vocab, base_width=base_width)
    run = Run(width, steps=arguments["steps"], table=of_width, **chosen)
    losses, steps = np.asarray(train(run), np.float64), arguments["steps"]
    last = max(1, round(arguments["final_fraction"] * steps))
    if losses.shape != (steps,):
        raise InputError(f"train must return the losses of {steps} steps, got an array of shape {losses.shape}")
    diverged = np.flatnonzero(~np.isfinite(losses))
    unknown = np.full(steps, np.nan)
    return Outcome(
        status="diverged" if diverged.size else "finished",
        steps=steps,
        diverged_step=int(diverged[0]) if diverged.size else None,
        train_loss=None if diverged.size else float(losses[-last:].mean()),
        valid_loss=None,
        **curve(losses, unknown, np.full(steps, run.learning_rate)),
    )


ETA = (
    "η: rate of the hidden matrices; loss: at the vertex of a parabola near the train losses; notes: docs/statistics.md"
)
NEAR = 0.02  # relative distance to the best loss of the shaded rates in the figure


# --- the results ------------------------------------------------------------------------------------------------------


def losses(table, config: Runs) -> list[np.ndarray]:
    """By width, the final train losses [seeds, rates]."""
    column = "setting.model.width" if "setting.model.width" in table else "setting.arguments.width"
    rate = "run.learning_rate"
    rows = [select(table, {column: width}) for width in config.widths]
    return [losses_by_seed_and_rate(each, config.rates, config.seeds, rate=rate) for each in rows]


def summary(table, config: Runs, rule: Rule | None = None) -> str:
    """A line per width, and the slope of the best rate."""
    best = analysis.optima(config.rates, losses(table, config))
    lines = [f"{'width':>6} {OPTIMUM_HEADER.replace('best η_E', '  best η')} {'embedding':>10}  notes"]
    for width, each in zip(config.widths, best, strict=True):
        numbers, flags = optimum_row(each)
        factor = f"η × {config.table(width, rule)['embedding'].lr_multiplier:.3g}"
        lines.append(f"{width:>6} {numbers} {factor:>10}  {'; '.join(filter(None, (flags, *each.notes)))}")
    return "\n".join([*lines, slope_line(analysis.slope(config.widths, best), config.widths, "η"), ETA])


def figure(table, config: Runs, **origin):
    """The losses over the rate at every width, and the best rate over the width."""
    return optimum_figure.optimum_vs_width(
        config.widths,
        config.rates,
        losses(table, config),
        title="Best learning rate of the hidden matrices by width",
        rate_label="learning rate η of the hidden matrices",
        tolerance=NEAR,
        **origin,
    )
