"""A decoder trained on next tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lvp import measures, mesh_axes, optim
from lvp.data.tokens import batches, streams
from lvp.errors import InputError
from lvp.losses import next_token_loss
from lvp.models.decoder import decoder, first_input
from lvp.parallel import sharding
from lvp.training.batches import ALL_STEPS, DEVICE_TOKENS, Feed, RandomWindows, StreamedRows
from lvp.training.program import PackedProgram
from lvp.training.setting import Run, Setting, traced_table

STREAMED_STEPS = 8  # steps whose rows go to the device together
_CORPUS_TOKENS = 12_000_000  # assumed for a whole corpus: WikiText-2 has fewer bytes


def check_lengths(setting: Setting, train: int, valid: int) -> None:
    """Checks that the texts are long enough for the setting.

    Args:
      train: number of tokens of the training text.
      valid: number of tokens of the validation text.

    Raises:
      InputError: the training text has fewer than context + 1 tokens, or the validation text fewer than 2.
    """
    if train < setting.model.context + 1:
        raise InputError(f"the training slice holds {train} tokens; give at least {setting.model.context + 1}, one row")
    if valid < 2:
        raise InputError(f"the validation text holds {valid} tokens; give at least 2")


class TrainingData(NamedTuple):
    """The program's data, on the host or the device. Windows come in k groups of b rows; b is the micro-batch size."""

    train: Any  # RandomWindows or StreamedRows: the source of training batches
    valid: Any  # int32 [k, b, context + 1]: windows of the validation text
    valid_weights: Any  # float32 [k, b, context]: 0 for padding
    probe: Any  # int32 [rows, context]: inputs of the representation measures, from the validation text
    frequencies: Any = None  # float32 [vocab]: of the training tokens
    scored: Any = None  # int32 [k, b, context + 1]: windows of the text that is scored
    scored_weights: Any = None  # float32 [k, b, context]

    def feed(self, step: int) -> tuple[int, "TrainingData"]:
        """The same data for every step."""
        return ALL_STEPS, self

    @classmethod
    def from_tokens(
        cls, setting: Setting, train: np.ndarray, valid: np.ndarray, scored: np.ndarray | None = None
    ) -> "TrainingData":
        """The data of a setting that draws random windows from the training tokens.

        The last group of windows is padded with weight 0. Windows of the scored text advance by half a context
        (`lvp.data.tokens.batches.evaluation_windows`).

        Raises:
          InputError: a text is too short for the setting.
          ValueError: there are more than `DEVICE_TOKENS` training tokens (`run_feeds` takes them), or only one of
            `scored` and the setting's scored text is given.
        """
        if len(train) > DEVICE_TOKENS:
            raise ValueError(f"{len(train)} training tokens exceed {DEVICE_TOKENS}: use run_feeds")
        rest = cls._without_batches(setting, len(train), valid, scored)
        frequencies = streams.frequencies(train, setting.vocab).astype(np.float32)
        return rest._replace(train=RandomWindows(np.array(train, np.int32)), frequencies=frequencies)

    @classmethod
    def _without_batches(
        cls, setting: Setting, count: int, valid: np.ndarray, scored: np.ndarray | None
    ) -> "TrainingData":
        """The data for evaluation and measures, of a setting with `count` training tokens."""
        check_lengths(setting, count, len(valid))
        if (scored is None) != (setting.data.scored is None):
            raise ValueError("scored must be given if the setting has a scored text, and None otherwise")
        context = setting.model.context
        # Whole windows, repeated if there are too few: padding would count as text.
        whole = batches.evaluation_windows(valid, context)[0][: max(1, (len(valid) - 1) // context), :-1]
        probe = np.resize(whole, (setting.probe_rows, context)).astype(np.int32)
        windows, weights = _in_groups(setting, valid)
        scored_parts = (None, None) if scored is None else _in_groups(setting, scored, max(1, context // 2))
        return cls(None, windows, weights, probe, None, *scored_parts)


def data_shapes(setting: Setting) -> TrainingData:
    """The shapes of the data of the program for one run. Texts for the evaluation have one group of windows."""
    shape, context, rows = jax.ShapeDtypeStruct, setting.model.context, setting.micro_batch_size
    windows, weights = shape((1, rows, context + 1), jnp.int32), shape((1, rows, context), jnp.float32)
    train: Any = StreamedRows(shape((STREAMED_STEPS, setting.batch, context + 1), jnp.int32), shape((), jnp.int32))
    frequencies = None
    if not setting.data.read_by_host():
        num_tokens = setting.data.slice_bytes or _CORPUS_TOKENS  # a token has at least one byte
        train = RandomWindows(shape((num_tokens,), jnp.int32))
        frequencies = shape((setting.vocab,), jnp.float32)
    scored = (None, None) if setting.data.scored is None else (windows, weights)
    return TrainingData(train, windows, weights, shape((setting.probe_rows, context), jnp.int32), frequencies, *scored)


def _in_groups(setting: Setting, tokens: np.ndarray, stride: int | None = None) -> list[np.ndarray]:
    """Evaluation windows in groups of one micro-batch, and the weights of their predictions."""
    return batches.grouped(setting.micro_batch_size, *batches.evaluation_windows(tokens, setting.model.context, stride))


class StreamedTokens:
    """The feed of runs whose rows or windows the host reads, from memory or disk.

    Each run of a pack reads its own rows. Each process reads what its devices of the mesh train on. A thread reads the
    next rows during training.

    Raises:
      InputError: a text is too short for the setting or, when rows are read, a token is outside of the vocabulary.
      ValueError: only one of `scored` and the setting's scored text is given.
    """

    def __init__(
        self,
        setting: Setting,
        train: np.ndarray,
        valid: np.ndarray,
        seeds: Sequence[int],
        mesh: Mesh | None = None,
        scored: np.ndarray | None = None,
    ):
        self._setting, self._mesh = setting, mesh
        kind = streams.Rows if setting.data.order == "rows" else streams.Windows
        # Runs of a pack may share a seed, and then share its rows.
        self._rows = {
            seed: kind(train, context=setting.model.context, batch=setting.batch, seed=seed) for seed in seeds
        }
        self._seeds = list(seeds)
        self._rest = TrainingData._without_batches(setting, len(train), valid, scored)
        # The file may be larger than memory: it is counted only if a measure needs it.
        if setting.measured_steps and "vocabulary" in setting.measures:
            frequencies = streams.frequencies(train, setting.vocab).astype(np.float32)
            self._rest = self._rest._replace(frequencies=frequencies)
        self.feed = streams.prefetched(self._read)

    def _read(self, step: int) -> tuple[int, TrainingData]:
        setting = self._setting
        stop = min(step + STREAMED_STEPS, setting.steps)
        shape = (STREAMED_STEPS, setting.batch, setting.model.context + 1)

        def part(index, seed=self._seeds[0]) -> np.ndarray:
            first, last, _ = index[1].indices(setting.batch)
            rows = np.zeros((STREAMED_STEPS, last - first, shape[2]), np.int32)
            for i in range(stop - step):
                rows[i] = self._rows[seed].at(step + i, first, last)
            if rows.min() < 0 or rows.max() >= setting.vocab:
                wrong = rows.max() if rows.max() >= setting.vocab else rows.min()
                raise InputError(
                    f"token {wrong} is outside of the vocabulary of {setting.vocab}: another tokenizer made these "
                    "tokens; encode the text with the vocabulary of the setting"
                )
            return rows

        if self._mesh is None:
            read = {seed: part((None, slice(None)), seed) for seed in self._rows}
            parts = [read[seed] for seed in self._seeds]
            rows: Any = parts[0] if len(parts) == 1 else np.stack(parts)
        else:
            placed = NamedSharding(self._mesh, PartitionSpec(None, mesh_axes.TOKENS))
            rows = jax.make_array_from_callback(shape, placed, part)
        return stop, self._rest._replace(train=StreamedRows(rows, np.int32(step)))


def run_feeds(
    setting: Setting, train: np.ndarray, valid: np.ndarray, scored: np.ndarray | None = None, mesh: Mesh | None = None
) -> Callable[[Sequence[Run]], Feed]:
    """The runs of a pack → their feed, by the setting's data order. All packs share one copy of tokens on the device.

    Random windows of more than `DEVICE_TOKENS` tokens are read by the host, and drawn by its generator.

    Args:
      train: int [n], tokens of the training text, in memory or memory-mapped.
      valid: int [n], tokens of the validation text.
      scored: int [n], tokens of the text that is scored; None without it.
      mesh: of the program; None for one device.
    """
    if setting.data.read_by_host(len(train)):
        return lambda runs: StreamedTokens(setting, train, valid, [run.seed for run in runs], mesh, scored)
    data = TrainingData.from_tokens(setting, train, valid, scored)
    if mesh is None:  # on a mesh every run places the data
        data = jax.device_put(data)
    return lambda runs: data


def check_mesh(setting: Setting, sizes: Mapping[str, int]) -> None:
    """Checks that a mesh fits a setting.

    Args:
      sizes: axis of the mesh → its size.

    Raises:
      InputError: the mesh does not divide the rows of a micro-batch, a split axis of a parameter, or the heads.
    """
    heads = {"heads": setting.model.num_heads, "heads of keys and values": setting.model.num_kv_heads}
    params = jax.eval_shape(decoder(setting.model).init, jax.random.key(0))
    sharding.check_fits(sizes, rows=setting.micro_batch_size, params=params, heads=heads)


class Gradients(NamedTuple):
    """Loss and gradients of one step."""

    loss: jax.Array
    gradient: Any
    squares: Any  # mean_k ‖G_k‖² of every neuron over micro-batches; None if not needed


class Program(PackedProgram):
    """The program of a `Setting`.

    States hold `params`, `opt`, `key` (of the run's data), `losses`, `diverged`, `valid_loss` and, with a scored text,
    `scored_nats` (NaN until the last step). With measured steps they also hold `initial_means` (of the vocabulary
    matrices) and `measures`.
    """

    def __init__(self, setting: Setting, runs: int = 1, mesh: Mesh | None = None):
        super().__init__(setting, runs, mesh)
        self._place = sharding.Placement(mesh)
        self.model = self._model()
        if mesh is not None:
            check_mesh(setting, mesh.shape)

    def _model(self) -> Any:
        return decoder(self.setting.model, self._place)

    def data_placement(self, data: TrainingData) -> Any:
        placement = super().data_placement(data)
        return placement if self.mesh is None else placement._replace(train=data.train.placement(self.mesh))

    def _runs_axes(self, data: TrainingData) -> Any:
        return TrainingData(StreamedRows(0, None), *[None] * 6) if isinstance(data.train, StreamedRows) else None

    def _rate(self, run):
        setting, rate = self.setting, run["learning_rate"]
        if setting.cooldown is None:
            return rate
        return optim.trapezoid(rate, setting.steps, warmup_steps=run["warmup_steps"], cooldown=setting.cooldown)

    def _optimizer(self, run):
        tx, clip = self._transformation(run), self.setting.clip_norm
        return tx if clip is None else optax.chain(optax.clip_by_global_norm(clip), tx)

    def _transformation(self, run):
        """The optimizer without clipping."""
        setting = self.setting
        table = traced_table(run, width=setting.model.width, vocab=setting.model.vocab)
        moments = {} if setting.moment_dtype is None else {"mu_dtype": jnp.dtype(setting.moment_dtype)}
        return setting.optimizer.transformation(table, self._rate(run), {**run["options"], **moments})

    def _init(self, run, params=None):
        init_key, data_key = jax.random.split(jax.random.key(run["seed"]))
        params = self.model.init(init_key, run["init_std"]) if params is None else params
        state = self._initial_state(params, self._optimizer(run).init(params), data_key)
        if self.setting.data.scored is not None:
            state["scored_nats"] = jnp.float32(jnp.nan)
        if not self.setting.measured_steps:
            return state
        state |= {"initial_means": measures.initial_means(params)}
        context, rows = self.setting.model.context, self.setting.micro_batch_size
        shapes = (1, self.setting.batch, context + 1), (1, rows, context + 1), (self.setting.probe_rows, context)
        train, valid, probe = (jnp.zeros(shape, jnp.int32) for shape in shapes)
        weights, frequencies = jnp.ones((1, rows, context)), jnp.zeros(self.setting.vocab)
        scored = (None, None) if self.setting.data.scored is None else (valid, weights)
        data = TrainingData(StreamedRows(train, jnp.int32(0)), valid, weights, probe, frequencies, *scored)
        return state | {"measures": self._empty_measures(lambda s: self._measured_update(0, s, run, data)[1], state)}

    def _loss(self, params, windows, weights=None, head=None):
        windows = self._place(windows, mesh_axes.TOKENS)
        hidden = self.model.apply(params, windows[:, :-1])
        head = self.model.head(params) if head is None else head
        return next_token_loss(hidden, head, windows[:, 1:], weights, mesh=self.mesh)

    def _batch(self, step, state, data):
        key = jax.random.wrap_key_data(state["key"])
        return data.train.batch(key, step, self.setting.batch, self.setting.model.context)

    def _mean(self, function, windows):
        """The mean of `function` over micro-batches, taken one by one: one activation memory serves all of them."""
        count = self.setting.micro_batches
        if count == 1:
            return function(windows)
        function = jax.jit(function)  # traced once for the shapes and for the loop
        parts = windows.reshape(count, -1, windows.shape[1])
        total = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, parts[0]))

        def add(total, windows):
            # Without the barrier, TPU's compiler fails: it moves sums over devices out of the loop.
            part = function(windows) if self.mesh is None else jax.lax.optimization_barrier(function(windows))
            return jax.tree.map(jnp.add, total, part), None

        total, _ = jax.lax.scan(add, total, parts)
        return jax.tree.map(lambda x: x / count, total)

    def _step(self, step, state, run, data):
        def gradients_of(windows) -> Gradients:
            loss, gradient = jax.value_and_grad(self._loss)(state["params"], windows)
            squares = measures.neuron_squares(gradient) if self.setting.optimizer.needs_snr else None
            return Gradients(loss, gradient, squares)

        windows = self._batch(step, state, data)
        return self._optimizer_step(step, state, run, windows, self._mean(gradients_of, windows))[0]

    def _optimizer_step(self, step, state, run, windows, gradients: Gradients):
        """(state after a step, its updates)."""
        extra = {}
        if self.setting.optimizer.needs_snr:
            extra["gradient_snr"] = self._snr(gradients)
        if self.setting.optimizer.needs_inputs:
            rows = windows[: self.setting.probe_rows, :-1]
            extra["inputs"] = self.model.apply(state["params"], rows, capture=True)[1]
        updates, opt = self._optimizer(run).update(gradients.gradient, state["opt"], state["params"], **extra)
        return self._updated_state(step, state, gradients.loss, gradients.gradient, updates, opt), updates

    def _snr(self, gradients: Gradients):
        """The signal-to-noise ratio φ of every parameter."""
        sizes = self.setting.micro_batches, self.setting.micro_batch_size
        squares_of_mean = measures.neuron_squares(gradients.gradient)
        # Stacked layers share one φ.
        return jax.tree.map(
            lambda of_mean, mean: optim.snr_of_squares(jnp.sum(of_mean), jnp.sum(mean), *sizes),
            squares_of_mean,
            gradients.squares,
        )

    def _option(self, run, name):
        """An option of the optimizer: the run's, else the setting's, else the factory's default."""
        return run["options"].get(name, self.setting.optimizer.option(name))

    def _measured_step(self, step, state, run, data):
        return self._with_measures(step, *self._measured_update(step, state, run, data))

    def _measured_update(self, step, state, run, data):
        """(state after the step, measures of the step).

        The head's gradient is separate, because a tied matrix also has the embedding's gradient.
        """
        params = state["params"]
        head, into_params = jax.vjp(self.model.head, params)

        def gradients_of(windows):
            loss_of = lambda p, h: self._loss(p, windows, head=h)  # noqa: E731
            loss, (gradient, of_head) = jax.value_and_grad(loss_of, argnums=(0, 1))(params, head)
            gradient = jax.tree.map(jnp.add, gradient, into_params(of_head)[0])
            squares = measures.neuron_squares(gradient) if self.setting.micro_batches > 1 else None
            return Gradients(loss, gradient, squares), of_head

        windows = self._batch(step, state, data)
        gradients, of_head = self._mean(gradients_of, windows)
        after, updates = self._optimizer_step(step, state, run, windows, gradients)
        measured = self._measures(state, after, run, data, updates, gradients, of_head)
        if self.setting.scored_steps:
            measured["scored"] = {"nats": self._scored_at(step, after, data)}
        return after, measured

    def _measures(self, state, after, run, data, updates, gradients, of_head) -> dict:
        params = state["params"]

        def vocabulary():
            b2, means = self._option(run, "b2"), state["initial_means"]
            moments = {} if b2 is None else measures.second_moments(after["opt"], b2)
            hidden = self.model.apply(params, data.probe)
            hidden = hidden.reshape(-1, hidden.shape[-1])
            return measures.of_vocabulary(
                params, updates, of_head, moments, means, data.frequencies, after["opt"], hidden
            )

        def representation():
            _, inputs = self.model.apply(params, data.probe, capture=True)
            return measures.representation_change(params, updates, inputs)

        def of_gradients():
            parts = []
            decay = self._option(run, self.setting.optimizer.momentum)
            if decay is not None and (momentum := measures.first_moments(state["opt"])):
                parts += [measures.alignment(gradients.gradient, momentum, decay)]
            if gradients.squares is not None:
                sizes = self.setting.micro_batches, self.setting.micro_batch_size
                parts += [measures.snr(gradients.gradient, gradients.squares, *sizes)]
            return measures.joined(*parts)

        measured = {
            "movement": lambda: measures.updates(params, updates),
            "vocabulary": vocabulary,
            "representation": representation,
            "gradients": of_gradients,
            "validation": lambda: {"validation": {"loss": self._validated(after, data)}},
            "later_positions": lambda: {"later_positions": {"loss": self._later_validated(after, data)}},
            "inputs": lambda: measures.input_sizes(*first_input(self.setting.model, params, data.probe)),
        }
        return measures.joined(*(measured[kind]() for kind in self.setting.measures))

    def _nats(self, params, windows, weights):
        """The summed loss of all groups of windows, in nats."""

        def body(total, group):
            windows, weights = group
            return total + self._loss(params, windows, weights) * jnp.sum(weights), None

        return jax.lax.scan(body, jnp.float32(0), (windows, weights))[0]

    def _validated(self, state, data):
        return self._nats(state["params"], data.valid, data.valid_weights) / jnp.sum(data.valid_weights)

    def _later_validated(self, state, data):
        """The validation loss of the tokens in the second half of each window."""
        weights = data.valid_weights.at[..., : self.setting.model.context // 2].set(0)
        return self._nats(state["params"], data.valid, weights) / jnp.sum(weights)

    def _scored(self, state, data):
        return self._nats(state["params"], data.scored, data.scored_weights)

    def _scored_at(self, step, state, data):
        """`_scored` after a scored step, NaN after any other step."""
        scored = jnp.isin(step, jnp.array(self.setting.scored_steps))
        return jax.lax.cond(scored, lambda s: self._scored(s, data), lambda s: jnp.float32(jnp.nan), state)

    def _evaluated(self, state, run, data):
        losses = {"valid_loss": self._validated(state, data)}
        if self.setting.data.scored is not None:
            losses["scored_nats"] = self._scored(state, data)
        return losses
