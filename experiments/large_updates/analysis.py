"""What the records of `large_updates` say, and its table."""

import numpy as np

from experiments.common.decoder_runs import where
from experiments.large_updates.config import ARMS, Config, lane_of
from lvp.training import steps_of_parts


def rows(table, config: Config, name: str, scale: float):
    """The lanes of an arm at a scale, a row a seed; nothing but NaN in the row of one that is missing or diverged."""
    lane = lane_of(config, name, scale, 0)
    columns = {f"lane.{k}": getattr(lane, k) for k in ("first_scale", "random", "frozen", "negative_slope")}
    return where(table, columns | {"status": "finished"}).set_index("lane.seed").reindex(list(config.seeds))


def accuracy(table, config: Config, name: str, scale: float) -> np.ndarray:
    """Of the test images, in % [seeds]."""
    return 100 * rows(table, config, name, scale)["accuracy"].to_numpy(float)


def course(table, config: Config, name: str, scale: float, what: str) -> np.ndarray:
    """A measure at `measured_epochs` [seeds, epochs]; NaN where there is none."""
    empty = [np.nan] * len(measured_epochs(table, config))
    found = rows(table, config, name, scale).get(f"measures.{what}", [empty] * len(config.seeds))
    return np.array([x if isinstance(x, list) else empty for x in found], float)


def measured_epochs(table, config: Config) -> np.ndarray:
    """When the lanes were measured."""
    steps = int(table["cell.steps"].iloc[0])
    return config.epochs * (np.array(steps_of_parts(config.measured_parts, steps)) + 1) / steps


def dead(table, config: Config, name: str, scale: float) -> np.ndarray:
    """Fraction of dead ReLUs at the end [seeds]."""
    return course(table, config, name, scale, "dead.all")[:, -1]


def summary(table, config: Config) -> str:
    """Final accuracy and dead ReLUs of every arm by scale."""
    heads = "".join(f"{f'× {scale:g}: accuracy':>22} {'(paper)':>8} {'dead':>7}" for scale in config.scales)
    lines = [f"{'arm':<24}{heads}"]
    for name in config.arms:
        line = f"{name:<24}"
        for scale in config.scales:
            values = accuracy(table, config, name, scale)
            spread = f"±{np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            paper = f"({ARMS[name].paper[scale]:.1f})" if scale in ARMS[name].paper else ""
            line += f"{f'{values.mean():.1f}{spread}':>22} {paper:>8} {dead(table, config, name, scale).mean():>7.1%}"
        lines.append(line)
    lines += [
        "",
        "× scale of the rate in the first phase. Accuracy on the test images in %, ± standard deviation over seeds; "
        "paper: CIFAR-10, 205 epochs. dead: units (channels of a ReLU) that no test image activates, at the end",
    ]
    return "\n".join(lines).replace("nan%", "–").replace("nan±nan", "–").replace("nan", "–")
