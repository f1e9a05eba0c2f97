"""Training on rows that are read on demand: the same rows and the same bits for any chunks."""

import dataclasses

import jax
import numpy as np
import pytest

from lvp import roles, training
from lvp.data.tokens.streams import Rows, Windows
from lvp.errors import InputError
from lvp.losses import dense_next_token_loss
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.training import DataConfig, Program, Run, Setting, language, setting
from tests.marking import slow

SETTING = Setting(
    DecoderConfig(vocab=30, width=16, layers=1, context=8, head_dim=8),
    DataConfig("none", order="rows"),
    batch=6,
    steps=21,  # not a multiple of the steps per block
    micro_batches=2,
)
RUN = Run(dict.fromkeys(roles.ROLES, 0.01), dict.fromkeys(roles.ROLES, 0.2), 3)


@pytest.fixture(scope="module")
def feed():
    tokens = np.random.default_rng(0).integers(0, 30, 500).astype(np.int32)
    return training.StreamedTokens(SETTING, tokens[:400], tokens[400:], [RUN.seed]), tokens


@pytest.fixture(scope="module")
def program(feed):
    made = Program(SETTING)
    made.compile(feed[0].feed(0)[1])
    return made


@pytest.mark.slow
def test_training_resumes_bit_exactly_within_a_block(program, feed):
    kept = {}
    keep = lambda step, state: kept.setdefault(step, jax.tree.map(np.array, state))  # noqa: E731
    (whole,) = training.run(program, [RUN], feed[0], chunk_seconds=0, on_chunk=keep)
    assert whole.status == "finished" and list(kept) == list(range(1, 22))
    (long,) = training.run(program, [RUN], feed[0], chunk_seconds=60)
    assert long == whole
    for step in (5, 8, 20):
        (resumed,) = training.run(program, [RUN], feed[0], state=kept[step], step=step)
        assert resumed == whole


@pytest.mark.slow
def test_a_step_uses_its_rows(program, feed):
    """The loss of the first step equals the loss of its rows at the initial parameters."""
    model, tokens = decoder(SETTING.model), feed[1]
    rows = Rows(tokens[:400], context=8, batch=6, seed=RUN.seed).at(0, 0, 6)

    @jax.jit
    def loss(rows):
        params = model.init(jax.random.split(jax.random.key(RUN.seed))[0], RUN.init_std)
        return dense_next_token_loss(model.apply(params, rows[:, :-1]), model.head(params), rows[:, 1:])

    states = []
    training.run(program, [RUN], feed[0], chunk_seconds=0, on_chunk=lambda _, s: states.append(np.array(s["losses"])))
    np.testing.assert_allclose(states[0][0], loss(rows), rtol=1e-6)


def test_tokens_of_another_tokenizer_are_refused():
    tokens = np.full(100, 30, np.int32)
    with pytest.raises(InputError, match="token 30 is outside of the vocabulary of 30: another tokenizer made"):
        training.StreamedTokens(SETTING, tokens, tokens, [0]).feed(0)


WINDOWS = dataclasses.replace(SETTING, data=DataConfig("none"))


@pytest.fixture
def limit(monkeypatch):
    """Lets the device hold 300 tokens."""
    for module in (setting, language):
        monkeypatch.setattr(module, "DEVICE_TOKENS", 300)


def test_the_host_reads_the_windows_of_a_text_above_the_limit(program, feed, limit):
    tokens = feed[1]
    small, large = (training.run_feeds(WINDOWS, tokens[:n], tokens[400:])([RUN]) for n in (300, 301))
    assert isinstance(small.feed(0)[1].train, training.RandomWindows)
    stop, read = large.feed(0)
    windows = Windows(tokens[:301], context=8, batch=6, seed=RUN.seed)
    assert stop == language.STREAMED_STEPS and int(read.train.start) == 0
    for step in (0, stop - 1):
        np.testing.assert_array_equal(read.train.rows[step], windows.at(step, 0, 6))
    kept = {}
    keep = lambda step, state: kept.setdefault(step, jax.tree.map(np.array, state))  # noqa: E731
    (whole,) = training.run(program, [RUN], large, chunk_seconds=0, on_chunk=keep)
    again = training.run_feeds(WINDOWS, tokens[:301], tokens[400:])([RUN])
    (resumed,) = training.run(program, [RUN], again, state=kept[5], step=5)
    assert whole.status == "finished" and resumed == whole


@pytest.mark.parametrize("trained", [pytest.param(SETTING, id="rows"), slow(WINDOWS, id="windows")])
def test_each_run_of_a_pack_reads_its_own_rows(trained, feed, limit):
    tokens, own = feed[1], [RUN, dataclasses.replace(RUN, seed=4)]
    feeds = training.run_feeds(trained, tokens[:400], tokens[400:])
    packed = training.run(Program(trained, 2), own, feeds(own))
    single = Program(trained)
    for run, of_pack in zip(own, packed, strict=True):
        (alone,) = training.run(single, [run], feeds([run]))
        np.testing.assert_allclose(of_pack.curve_losses, alone.curve_losses, rtol=1e-5)
        assert of_pack.valid_loss == pytest.approx(alone.valid_loss, rel=1e-5)
    (other,) = training.run(single, own[:1], feeds(own[1:]))  # control: the rows of the other run
    assert np.abs(np.subtract(other.curve_losses, packed[0].curve_losses)).max() > 1e-2


def test_an_unknown_order_is_named():
    with pytest.raises(InputError, match="order must be one of windows, rows, got 'random'"):
        dataclasses.replace(SETTING.data, order="random")
