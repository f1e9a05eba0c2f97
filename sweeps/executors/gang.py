"""Workers on several hosts of a Ray cluster that train one lane together (`jax.distributed`)."""

import logging
import socket
import threading
from pathlib import Path

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lvp.files import write_whole
from sweeps.executors.cluster import Refused, look
from sweeps.executors.file_system_check import Shared
from sweeps.worker.stop import Reason, end
from sweeps.worker.worker import Settings, Worker, described

NOTICE = 10.0  # seconds in which Ray notices that a process has died


class Gang:
    """The worker of this process and, in the other bundles of its placement group, those of the other hosts. All run
    the same trials in the same order; the first one writes. One that fails leaves the others in the middle of what they
    do together: then all end, and what they were at is tried again by a new gang. Refused where one of the machines
    cannot take part."""

    def __init__(self, shared: Shared, settings: Settings, resources: dict[str, float]):
        out, self.shared = str(shared.out), shared
        self._check(look(shared), *ray.get([self._look(i) for i in range(1, settings.hosts)]))
        self.worker, self.broken = Worker(out, settings), False
        self.others = [self._other(out, settings, resources, i) for i in range(1, settings.hosts)]
        if self.others:
            address = f"{ray.util.get_node_ip_address()}:{_free_port()}"
            joined = [other.join.remote(address, i) for i, other in enumerate(self.others, 1)]
            self.worker.join(address, 0)
            ray.get(joined)
        else:
            self.worker.stop_on_sigterm()

    @staticmethod
    def _in_bundle(bundle: int) -> PlacementGroupSchedulingStrategy:
        group = ray.util.get_current_placement_group()
        assert group is not None  # Tune gives every trial one
        return PlacementGroupSchedulingStrategy(group, bundle)

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
        if self.broken:
            end(Reason.GANG_BROKEN)
        self._check(look(self.shared))
        if not self.others:
            return self.worker.run_trial(trial)
        # What is left is decided once: records appear while they work.
        trial = trial | {"lanes": self.worker.unfinished(trial["lanes"])}
        pending = [other.run_trial.remote(trial) for other in self.others]
        threading.Thread(target=self._end_with, args=(pending, trial["id"]), daemon=True).start()
        try:
            report = self.worker.run_trial(trial)
        except Exception as error:
            self.broken = True
            if any(map(_died, pending)):  # and this one failed by that: a death, to be tried again as one
                write_whole(why_path(self.worker.out, trial["id"]), described(error))
                end(Reason.GANG_BROKEN)
            self.end()
            raise
        ray.get(pending)
        return report

    def _end_with(self, pending: list, trial: str) -> None:
        """Ends this process when another one of the gang fails: it would wait for that one in vain."""
        try:
            ray.get(pending)
        except Exception as error:
            if not self.broken:
                cause = getattr(error, "cause", None) or error
                logging.error("another worker of the gang failed: %s", described(cause))
                write_whole(why_path(self.worker.out, trial), described(cause))
                end(Reason.GANG_BROKEN)

    def end(self) -> None:
        for other in self.others:
            ray.kill(other)


def _died(pending) -> bool:
    """Whether the process that was to answer is no more. Ray learns of that within seconds."""
    try:
        ray.get(pending, timeout=NOTICE)
    except ray.exceptions.RayActorError:
        return True
    except Exception:  # it lives, and has failed on its own or is waiting for the others
        return False
    return False


def why_path(out: Path, trial: str) -> Path:
    """Where a gang says why it ended in the middle of a trial."""
    return Path(out) / "workers" / f"{trial}.why"


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
