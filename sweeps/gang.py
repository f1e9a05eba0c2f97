"""Workers on several hosts of a Ray cluster that train one lane together (`jax.distributed`)."""

import socket

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from sweeps.cluster import Refused, look
from sweeps.shared import Shared
from sweeps.worker import Settings, Worker


class Gang:
    """The worker of this process and, in the other bundles of its placement group, those of the other hosts. All run
    the same trials in the same order; the first one writes. Refused where one of the machines cannot take part."""

    def __init__(self, shared: Shared, settings: Settings, resources: dict[str, float]):
        out, self.shared = str(shared.out), shared
        self._check(look(shared), *ray.get([self._look(i) for i in range(1, settings.hosts)]))
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
    def _in_bundle(bundle: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(ray.util.get_current_placement_group(), bundle)

    def _look(self, bundle: int):
        return ray.remote(look).options(num_cpus=0, scheduling_strategy=self._in_bundle(bundle)).remote(self.shared)

    @staticmethod
    def _check(*looks: tuple[str, str | None]) -> None:
        for node, why in looks:
            if why:
                raise Refused(node, why)

    def _other(self, out: str, settings: Settings, resources: dict[str, float], bundle: int):
        options = {"scheduling_strategy": self._in_bundle(bundle)} | as_options(resources)
        return ray.remote(Worker).options(**options).remote(out, settings)

    def run_trial(self, trial: dict) -> dict:
        """As `Worker.run_trial`; Refused where this machine no longer sees the sweep."""
        self._check(look(self.shared))
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
