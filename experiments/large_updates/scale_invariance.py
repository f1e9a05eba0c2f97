"""Scale invariance (Kosson et al. 2024, section 5 and appendix B.2): the calculated runs of `large_updates`.

If the output of a kernel is normalised, multiplying the kernel by c does not change the network. The kernel's gradient
is then multiplied by 1/c, its second derivative and the angle of an SGD update by 1/c², and the angle of an Adam update
by 1/c.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lvp import measures, roles
from lvp.experiments.large_updates.resnet import DECLARATIONS, ResNetConfig, resnet

ARGUMENTS: Mapping[str, Any] = {
    "factors": [0.25, 0.5, 1.0, 2.0, 4.0],  # c
    "images": 32,
    "angle": 1e-3,  # rad: the angle of the updates at c = 1
}
# Measured value → its power of c.
POWERS = {"gradient": -1.0, "second derivative": -2.0, "angle of an SGD update": -2.0, "angle of an Adam update": -1.0}


def calculate(arguments: Mapping[str, Any], run: Mapping[str, Any], dataset=None) -> dict[str, Any]:
    """`powers`: measured value → its power of c for every normalised kernel, fitted to `factors`.

    All normalised kernels of a network at its init are multiplied by c. Images and labels are random. The second
    derivative is along a random direction of one kernel. Adam's update is its first, the sign of the gradient.
    """
    config, num_images, angle = ResNetConfig(**arguments["model"]), arguments["images"], arguments["angle"]
    model, rng = resnet(config), np.random.default_rng(run["seed"])
    images = jnp.asarray(rng.standard_normal((num_images, *config.image)), jnp.float32)
    labels, stats = rng.integers(0, config.classes, num_images), model.init_stats()
    params = model.init(jax.random.key(run["seed"]))
    leaves, structure = jax.tree.flatten(params)
    described = jax.tree.leaves(roles.classify(params, extra=DECLARATIONS))
    kernels = [i for i, leaf in enumerate(described) if leaf.role == "hidden"]
    directions = [jnp.asarray(rng.standard_normal(leaves[i].shape), jnp.float32) for i in kernels]

    def loss(at):
        by_index = dict(zip(kernels, at, strict=True))
        changed = jax.tree.unflatten(structure, [by_index.get(i, x) for i, x in enumerate(leaves)])
        logits, _ = model.apply(changed, stats, images, 0.0, True)
        return -jnp.mean(jax.nn.log_softmax(logits)[np.arange(num_images), labels])

    @jax.jit
    def derivatives(at):
        """(gradients, second derivatives along the directions)."""
        gradients, curvature_along = jax.linearize(jax.grad(loss), at)

        def second_derivative(index):
            along = [jnp.where(i == index, direction, 0) for i, direction in enumerate(directions)]
            return sum(map(jnp.vdot, along, curvature_along(along)))

        return gradients, jax.lax.map(second_derivative, jnp.arange(len(directions)))

    start = [leaves[i] for i in kernels]
    gradients, _ = derivatives(start)
    norms = [[float(jnp.linalg.norm(x)) for x in xs] for xs in (start, gradients)]
    values: dict[str, list] = {name: [] for name in POWERS}
    for factor in arguments["factors"]:
        at = [factor * x for x in start]
        gradients, curvatures = derivatives(at)
        values["gradient"].append([jnp.linalg.norm(g) for g in gradients])
        values["second derivative"].append(list(jnp.abs(curvatures)))
        sgd = [-angle * size / slope * g for g, size, slope in zip(gradients, *norms, strict=True)]
        adam = [-angle * size / g.size**0.5 * jnp.sign(g) for g, size in zip(gradients, norms[0], strict=True)]
        values["angle of an SGD update"].append(list(map(measures.angle, at, sgd)))
        values["angle of an Adam update"].append(list(map(measures.angle, at, adam)))
    logs = np.log(arguments["factors"])
    powers = {name: np.polyfit(logs, np.log(np.array(xs, float)), 1)[0] for name, xs in values.items()}
    return {"powers": {name: by_kernel.tolist() for name, by_kernel in powers.items()}}
