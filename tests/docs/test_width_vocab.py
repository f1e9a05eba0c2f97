"""The sentence of docs/width_vocab.md about an embedding that hardly learns agrees with its records."""

from pathlib import Path

from lvp.experiments.width_vocab.analysis import optima
from lvp.sweeps.committed import result
from lvp.training import records

ROOT = Path(__file__).parents[2]


def test_an_embedding_that_hardly_learns_is_within_the_band_at_small_widths():
    rows = records.read(ROOT / "experiments/results/unfinished/width_vocab_extreme_rates.jsonl.gz")
    trials = records.table([records.in_current_form(row) for row in rows])
    trials = trials[trials["setting.model.embedding_multiplier"] > 1]
    rate = "run.learning_rates.embedding"
    slowest = trials.sort_values(rate).groupby("setting.model.width").first()
    assert slowest[rate].max() < 2e-7
    committed = result("width_vocab/laptop-wikitext2")
    best = dict(zip(committed.config.widths, optima(committed.table, committed.config, "sqrt")[0], strict=True))
    within = {width for width, row in slowest.iterrows() if row["train_loss"] <= 1.2 * best[width].loss}
    assert within == {32, 48} and set(slowest.index) == {32, 48, 64}
    assert "within 20 % of the best loss at d 32 and 48" in (ROOT / "docs/width_vocab.md").read_text()
