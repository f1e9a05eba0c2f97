"""Settings and runs.

A **setting** is the part of a run that is compiled. A **run** holds the numbers that are traced: learning rates, init
scales, warm-up, chosen options of the optimizer, seed.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
import optax

from lvp import optim, roles
from lvp.errors import InputError
from lvp.models.configs import CHOICES, OMITTED, DecoderConfig
from lvp.parametrization import Row, Table
from lvp.parametrization.rules import decays
from lvp.training.batches import DEVICE_TOKENS, ORDERS

# Queries, keys and values of lvp's decoder in one kernel are equally long, also if their heads do not fill the width.
_EQUAL_PARTS = tuple(replace(declared, optional=True) for declared in roles.DEFAULT if declared.fused != 1)
OPTIMIZERS: Mapping[str, Callable] = {
    "adam": optax.adam,
    "adamw": optim.adamw,
    "coupled_adam": optim.coupled_adam,
    "lion_a": optim.lion_a,
    "lion_ar": optim.lion_ar,
    "muon": optax.contrib.muon,  # of the hidden matrices; `optax.adam` trains the others
    "rotational_adamw": optim.rotational_adamw,
    "sgd": optax.sgd,
    "sign_sgd": optim.sign_sgd,
}


# Kinds of measures of a measured step; `lvp.measures` has the functions.
DEFAULT_MEASURES = ("movement", "vocabulary", "gradients", "representation")
MEASURES = (*DEFAULT_MEASURES, "validation", "later_positions", "inputs")


@dataclass(frozen=True)
class OptimizerConfig:
    """The static part of an optimizer.

    `weight_decay` is one number: matrices decay, vectors do not (`lvp.parametrization.rules.decays`). Kind "adam"
    without options records the defaults of b1, b2 and eps. Kind "muon" records `split`: queries, keys and values are
    separate matrices, which they were not in earlier runs. Measures of the first moment need a factory with an argument
    `b1` or `b`, and measures of the second moment need `b2`. Without the argument they are absent.

    Raises:
      InputError: `kind` is unknown, or is one of `OPTIMIZERS` although `factory` is given; `factory` is not a function
        or does not take the options; `weight_decay`, or eps of "muon", is not one number; eps by role does not name
        exactly the roles of `lvp.roles.ROLES`; `traced` names an argument that a run cannot set.
    """

    kind: str = "adam"  # a key of `OPTIMIZERS`, or the name of `factory`
    options: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of the optimizer; "eps" also by role
    traced: tuple[str, ...] = ()  # arguments that every run gives
    factory: InitVar[Callable | None] = None  # own optax factory; not a field, since records hold JSON only

    def __post_init__(self, factory):
        if factory is not None:
            self._check_own(factory)
            object.__setattr__(self, "factory", factory)  # `dataclasses.replace` reads it
        elif self.kind not in OPTIMIZERS:
            raise InputError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.kind!r}")
        elif self.kind == "adam" and not self.options:
            object.__setattr__(self, "options", {"b1": 0.9, "b2": 0.999, "eps": 1e-8})
        elif self.kind == "muon":
            object.__setattr__(self, "options", {**self.options, "split": True})
        if isinstance(self.options.get("weight_decay"), Mapping):
            raise InputError(
                "weight_decay must be one number, because the table of a parametrization says which roles decay; got "
                f"{self.options['weight_decay']!r}"
            )
        eps = self.options.get("eps")
        if isinstance(eps, Mapping) and self.kind == "muon":
            raise InputError(f"optimizer muon: eps must be one number, got {eps!r}")
        if isinstance(eps, Mapping) and set(eps) != set(roles.ROLES):
            raise InputError(f"eps by role must name the roles {', '.join(roles.ROLES)}, got {', '.join(eps)}")
        for name in self.traced:
            # batch_size is compiled, since it decides which measures exist.
            if name not in self._parameters or name == "batch_size":
                raise InputError(
                    f"traced: {name!r} is not an option of {self.kind} that a run can set; remove it from traced"
                )

    def _check_own(self, factory: Any) -> None:
        if self.kind in OPTIMIZERS:
            raise InputError(f"optimizer {self.kind}: lvp has an optimizer of this name; choose another name")
        if not callable(factory):
            raise InputError(f"factory of optimizer {self.kind} must be a function such as optax.adam, got {factory!r}")
        try:
            inspect.signature(factory).bind(learning_rate=0.0, **(dict(self.options) | dict.fromkeys(self.traced)))
        except TypeError as error:
            raise InputError(f"optimizer {self.kind}: its factory does not take these options: {error}") from None

    @property
    def make(self) -> Callable:
        """The optax factory."""
        return vars(self).get("factory") or OPTIMIZERS[self.kind]

    def transformation(
        self, table: Table, learning_rate: optax.ScalarOrSchedule, traced: Mapping[str, Any], **arguments: Any
    ) -> optax.GradientTransformationExtraArgs:
        """`optim.parametrized` with this factory, its options and the traced options."""
        options = {**self.options, **traced}
        factory: Any = self.make
        if isinstance(eps := options.get("eps"), Mapping):
            factory = {role: functools.partial(self.make, eps=eps[role]) for role in table}
            del options["eps"]
        if self.kind == "muon":
            # `optax.contrib.muon` has its own Adam, but with Nesterov momentum.
            renamed = {"adam_b1": "b1", "adam_b2": "b2", "eps": "eps", "mu_dtype": "mu_dtype"}
            of_adam = {renamed[name]: value for name, value in options.items() if name in renamed}
            decay = {"weight_decay": options.pop("weight_decay")} if "weight_decay" in options else {}
            factory = dict.fromkeys(table, functools.partial(optax.adamw if decay else optax.adam, **of_adam))
            del options["split"]
            factory["hidden"] = functools.partial(optax.contrib.muon, **options)
            arguments["declarations"] = (*arguments.get("declarations", ()), *_EQUAL_PARTS)
            options = decay
        return optim.parametrized(factory, table, learning_rate, **options, **arguments)

    def check_moment_dtype(self, dtype: str) -> None:
        """Checks the dtype of the first moment.

        Raises:
          InputError: the dtype is unknown, or the factory has no argument `mu_dtype`.
        """
        if dtype not in CHOICES["dtype"]:
            raise InputError(f"moment_dtype must be one of {', '.join(CHOICES['dtype'])}, got {dtype!r}")
        if "mu_dtype" not in self._parameters:
            raise InputError(f"moment_dtype={dtype}: optimizer {self.kind} has no dtype of its moments; omit it")

    @functools.cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.make).parameters

    def option(self, name: str) -> Any:
        """The chosen value of an argument, else the factory's default; None if the factory lacks the argument."""
        parameters = self._parameters
        return self.options.get(name, parameters[name].default) if name in parameters else None

    @property
    def momentum(self) -> str:
        """The factory's name for the decay of its first moment."""
        return "b" if "b" in self._parameters else "b1"

    @property
    def needs_snr(self) -> bool:
        """True if the updates are scaled by the gradient's signal-to-noise ratio."""
        return self.option("batch_size") is not None

    @property
    def needs_inputs(self) -> bool:
        """True if the updates depend on the matrices' inputs: the factory has a true option `needs_inputs`."""
        return bool(self.option("needs_inputs"))


@dataclass(frozen=True)
class DataConfig:
    """The text of a setting.

    Raises:
      InputError: `order` is unknown.
    """

    corpus: str  # as in `lvp.data.load`
    slice_bytes: int | None = None  # length of the training text; None takes the whole split
    valid_bytes: int | None = None  # length of the validation text; None takes the whole split
    # "windows": random windows, of tokens on the device or, above `DEVICE_TOKENS`, read from disk. "rows": rows read
    # from disk, each once an epoch.
    order: str = "windows"
    scored: str | None = None  # text whose likelihood is computed after the last step (`lvp.data.tokens.scored`)

    def __post_init__(self):
        if self.order not in ORDERS:
            raise InputError(f"order must be one of {', '.join(ORDERS)}, got {self.order!r}")

    def read_by_host(self, num_tokens: int = 0) -> bool:
        """True if the host reads the batches of a training text of `num_tokens` tokens, each run its own."""
        return self.order == "rows" or num_tokens > DEVICE_TOKENS


class AnySetting:
    """The base of settings of any kind: checks and derived numbers.

    A setting of your own is a frozen dataclass that derives from it. It defines the members that are not implemented
    here, as `Setting` does, and returns its `lvp.training.Task` from `task`.
    """

    model: Any
    data: Any
    batch: int
    steps: int
    final_fraction: float

    @property
    def measured_steps(self) -> tuple[int, ...]:
        """The steps, from 0, whose measures go into the outcome."""
        raise NotImplementedError

    @property
    def tokens_per_step(self) -> int:
        raise NotImplementedError

    @property
    def flops_per_run(self) -> float:
        """Model FLOPs of one run's training, without evaluation."""
        raise NotImplementedError

    def check(self, run: Any) -> None:
        """Checks that the setting can train a run.

        Raises:
          InputError: the setting cannot train the run.
        """
        raise NotImplementedError

    def example_run(self) -> Any:
        """A run to compile with."""
        raise NotImplementedError

    def task(self) -> Any:
        """The task that trains the setting. `lvp.training.task_for` knows that of a `Setting`."""
        raise NotImplementedError

    def check_steps(self) -> None:
        """Checks the sizes and steps that settings of any kind have.

        Raises:
          InputError: `batch` or `steps` is below 1, `final_fraction` is not in (0, 1], or `measured_steps` do not
            increase or are not from 0 to steps − 1.
        """
        for name in ("batch", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.final_fraction <= 1:
            raise InputError(f"final_fraction must lie in (0, 1], got {self.final_fraction}")
        chosen = self.measured_steps
        if list(chosen) != sorted(set(chosen)) or (chosen and not 0 <= chosen[0] <= chosen[-1] < self.steps):
            raise InputError(
                f"measured_steps must increase and lie from 0 to steps − 1 ({self.steps - 1}), got {chosen}"
            )

    @property
    def num_params(self) -> int:
        return self.model.num_params

    @property
    def tokens_per_run(self) -> int:
        return self.steps * self.tokens_per_step

    @property
    def final_steps(self) -> int:
        """The number of last steps over which the final training loss is averaged."""
        return max(1, round(self.final_fraction * self.steps))


@dataclass(frozen=True)
class Setting(AnySetting):
    """The part of a run that is compiled.

    Raises:
      InputError: a size is below 1, a fraction or step is out of range, the micro-batches do not divide the batch or
        are too few for the optimizer, a measure is unknown or not possible with `scan`, a scored step has no scored
        text or is not measured, `clip_norm` is not above zero, or the optimizer does not have `moment_dtype`. The error
        names the field.
    """

    model: DecoderConfig  # shapes and switches of the decoder
    data: DataConfig  # the text
    batch: int  # rows of `model.context` tokens per step
    steps: int  # training steps
    optimizer: OptimizerConfig = OptimizerConfig()  # the static part of the optimizer
    final_fraction: float = 0.1  # fraction of the steps, at the end, over which the final training loss is averaged
    measured_steps: tuple[int, ...] = ()  # steps, from 0, whose measures go into the outcome
    scored_steps: tuple[int, ...] = field(default=(), metadata=OMITTED)  # measured steps with a score of `data.scored`
    micro_batches: int = 1  # equal parts of a batch, computed one after the other
    cooldown: float | None = None  # cool-down of `lvp.optim.trapezoid`, a fraction of the steps; None: constant rates
    measures: tuple[str, ...] = DEFAULT_MEASURES  # kinds, of `MEASURES`; "validation" is the loss after the step
    clip_norm: float | None = None  # largest norm of the gradient of all parameters; larger gradients are scaled down
    # Of the first moment ("float32" or "bfloat16"); None is the parameters' dtype.
    moment_dtype: str | None = field(default=None, metadata=OMITTED)

    def __post_init__(self):
        self.check_steps()
        if self.micro_batches < 1:
            raise InputError(f"micro_batches must be at least 1, got {self.micro_batches}")
        for kind in self.measures:
            if kind not in MEASURES:
                raise InputError(f"measures must hold only {', '.join(MEASURES)}; got {kind!r}")
        if self.scored_steps and self.data.scored is None:
            raise InputError(
                f"scored_steps needs a scored text, got {self.scored_steps}; set data.scored or omit the steps"
            )
        if missing := sorted(set(self.scored_steps) - set(self.measured_steps)):
            raise InputError(f"scored_steps must be measured steps, got {self.scored_steps}; measure {missing} too")
        if self.batch % self.micro_batches:
            raise InputError(f"micro_batches ({self.micro_batches}) must divide batch ({self.batch})")
        if self.optimizer.needs_snr and self.micro_batches < 2:
            raise InputError(
                "micro_batches must be at least 2: this optimizer needs the gradient's signal-to-noise ratio, which is "
                "measured between micro-batches"
            )
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)
        if self.model.scan and self.measured_steps and "representation" in self.measures:
            raise InputError("scan: the measure 'representation' needs blocks that are not stacked; omit one of them")
        if self.model.scan and self.optimizer.needs_inputs:
            raise InputError(f"scan: optimizer {self.optimizer.kind} needs blocks that are not stacked; omit scan")
        if self.moment_dtype is not None:
            self.optimizer.check_moment_dtype(self.moment_dtype)
        if self.cooldown is not None and not 0 <= self.cooldown <= 1:
            raise InputError(f"cooldown must be a fraction of the steps in [0, 1], got {self.cooldown}")

    def check(self, run: "Run") -> None:
        """Checks that the setting can train a run.

        Raises:
          InputError: the run's options are not those that the setting traces, the setting has no cool-down for the
            warm-up, or warm-up and cool-down exceed the steps.
        """
        if set(run.options) != set(self.optimizer.traced):
            wanted, given = (", ".join(sorted(x)) or "none" for x in (self.optimizer.traced, run.options))
            raise InputError(f"a run must give the options that its setting traces ({wanted}), got {given}")
        if run.warmup_steps and self.cooldown is None:
            raise InputError(
                f"warmup_steps must be 0 at constant rates, got {run.warmup_steps}: set the setting's cooldown"
            )
        if run.warmup_steps + round((self.cooldown or 0) * self.steps) > self.steps:
            raise InputError(
                f"warmup_steps ({run.warmup_steps}) plus cooldown ({self.cooldown:g} of the steps) must not exceed "
                f"steps ({self.steps})"
            )

    def example_run(self) -> "Run":
        """A run to compile with: rates and stds are 1, options 0.5, the seed 0."""
        ones = dict.fromkeys(roles.ROLES, 1.0)
        return Run(ones, ones, 0, options=dict.fromkeys(self.optimizer.traced, 0.5))

    @property
    def micro_batch_size(self) -> int:
        """Rows of a micro-batch."""
        return self.batch // self.micro_batches

    @property
    def probe_rows(self) -> int:
        """Rows for the measures of representations: a quarter of a batch, at most a micro-batch."""
        return min(-(-self.batch // 4), self.micro_batch_size)

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.model.context

    @property
    def vocab(self) -> int:
        return self.model.vocab

    @property
    def flops_per_run(self) -> float:
        """Model FLOPs of one run's training, without evaluation."""
        return self.tokens_per_run * self.model.flops_per_token()


@dataclass(frozen=True)
class Run:
    """The traced numbers of one run. `Run.under` makes them from the table of a parametrization.

    Raises:
      InputError: a rate is not finite and above zero; a std or an option is not finite, or is negative; the warm-up is
        negative; a mapping does not name exactly the roles of `lvp.roles.ROLES`.
    """

    learning_rates: Mapping[str, float]  # role → rate; its peak if the setting has a schedule
    init_std: Mapping[str, float]  # role → standard deviation; gains start at one and biases at zero regardless
    seed: int  # of init and data order
    warmup_steps: int = 0  # length of the warm-up; needs a setting with a cool-down
    options: Mapping[str, float] = field(default_factory=dict)  # the arguments named by `OptimizerConfig.traced`

    def __post_init__(self):
        for role, rate in self.learning_rates.items():
            check_positive(f"learning rate of role {role}", rate)
        for role, std in self.init_std.items():
            check_positive(f"init std of role {role}", std, zero=True)
        for name, given in (("learning_rates", self.learning_rates), ("init_std", self.init_std)):
            if set(given) != set(roles.ROLES):
                raise InputError(f"{name} must name the roles {', '.join(roles.ROLES)}; got {', '.join(given)}")
        if self.warmup_steps < 0:
            raise InputError(f"warmup_steps must not be negative, got {self.warmup_steps}")
        for name, value in self.options.items():
            check_positive(name, value, zero=True)

    @classmethod
    def under(
        cls,
        table: Table,
        learning_rate: float,
        seed: int,
        *,
        rates: Mapping[str, float] | None = None,
        stds: Mapping[str, float] | None = None,
        **more: Any,
    ) -> "Run":
        """The run of a parametrization, with named deviations.

        Args:
          table: gives the run's init stds, and the factors on `learning_rate`. The tied matrix of a decoder has the
            role `output`, which takes the row "tied" if the table has one.
          learning_rate: the rate that the table's multipliers multiply (`Table.learning_rate` says which).
          seed: of init and data order.
          rates: role → learning rate instead of the table's.
          stds: role → init std instead of the table's.
          **more: the other fields.

        Raises:
          InputError: the table does not have a role, or a number is out of range.
        """
        for given in (rates or {}, stds or {}):
            for role in given:
                table[role]  # raises InputError for an unknown role
        rows = {row.role: row for row in table.rows}
        if tied := rows.pop("tied", None):
            rows["output"] = tied
        by_table = {role: learning_rate * row.lr_multiplier for role, row in rows.items()}
        stds = {role: row.init_std for role, row in rows.items()} | dict(stds or {})
        return cls(by_table | dict(rates or {}), stds, seed, **more)

    @property
    def hidden_rate(self) -> float:
        """The `learning_rate` for `lvp.optim.parametrized`: the rate of the hidden matrices."""
        return self.learning_rates["hidden"]

    def arrays(self) -> dict:
        """The run as the program's argument: scalars on the host, float32 except for whole numbers."""
        return {
            "learning_rate": np.float32(self.hidden_rate),
            "lr_multipliers": {role: np.float32(x / self.hidden_rate) for role, x in self.learning_rates.items()},
            "init_std": {role: np.float32(x) for role, x in self.init_std.items()},
            "seed": np.uint32(self.seed),
            "warmup_steps": np.int32(self.warmup_steps),
            "options": {name: np.float32(x) for name, x in self.options.items()},
        }


def steps_of_parts(parts: Sequence[float], steps: int) -> tuple[int, ...]:
    """The steps, from 0, at the ends of these fractions of the steps, without duplicates."""
    return tuple(sorted({max(0, round(part * steps) - 1) for part in parts}))


def traced_table(run: Mapping[str, Any], *, width: int, vocab: int) -> Table:
    """The table of a run's arrays, which may be traced."""
    stds, multipliers = run["init_std"], run["lr_multipliers"]
    rows = (Row(role, stds[role], multipliers[role], decays(role)) for role in roles.ROLES)
    return Table("run", width, vocab, "the run's hidden rate", tuple(rows))


def check_positive(what: str, value: Any, *, zero: bool = False) -> float:
    """`value` as a float, after a check.

    Args:
      what: names the value in errors.
      zero: True allows zero.

    Raises:
      InputError: the value is not a finite number above zero or, if allowed, zero.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a number, got {value!r}") from None
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise InputError(f"{what} must be finite and {'not negative' if zero else 'above zero'}, got {value!r}")
    return number
