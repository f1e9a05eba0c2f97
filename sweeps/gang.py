"""Workers on several hosts of a Ray cluster that train one lane together (`jax.distributed`)."""

import socket

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from sweeps.worker import Settings, Worker


class Gang:
    """The worker of this process and, in the other bundles of its placement group, those of the other hosts. All run
    the same trials in the same order; the first one writes."""

    def __init__(self, out: str, settings: Settings, resources: dict[str, float]):
        self.worker = Worker(out, settings)
        self.others = [self._other(out, settings, resources, i) for i in range(1, settings.hosts)]
        if self.others:
            address = f"{ray.util.get_node_ip_address()}:{_free_port()}"
            joined = [other.join.remote(address, i) for i, other in enumerate(self.others, 1)]
            self.worker.join(address, 0)
            ray.get(joined)
        else:
            self.worker.heed_sigterm()

    @staticmethod
    def _other(out: str, settings: Settings, resources: dict[str, float], bundle: int):
        strategy = PlacementGroupSchedulingStrategy(ray.util.get_current_placement_group(), bundle)
        return ray.remote(Worker).options(scheduling_strategy=strategy, **as_options(resources)).remote(out, settings)

    def run_trial(self, trial: dict) -> dict:
        """As `Worker.run_trial`."""
        if self.others:  # what is left is decided once: records appear while they work
            trial = trial | {"lanes": self.worker.unfinished(trial["lanes"])}
        pending = [other.run_trial.remote(trial) for other in self.others]
        report = self.worker.run_trial(trial)
        ray.get(pending)
        return report

    def end(self) -> None:
        for other in self.others:
            ray.kill(other)


def as_options(resources: dict[str, float]) -> dict:
    """Resources by name as a Ray actor's options."""
    return {
        "num_cpus": resources.get("CPU", 0),
        "num_gpus": resources.get("GPU", 0),
        "resources": {name: amount for name, amount in resources.items() if name == "TPU"},
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]
