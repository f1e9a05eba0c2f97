"""Gangs: workers on several hosts of a Ray cluster that train one lane together (`jax.distributed`)."""

import logging
import socket
import threading
from pathlib import Path

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lvp.errors import InputError
from lvp.files import write_whole
from sweeps.executors.cluster import Refused, checked, node_id
from sweeps.executors.machine_check import MachineCheck
from sweeps.worker.stop import Reason, end
from sweeps.worker.worker import Settings, Worker, is_full, one_line

NOTICE = 10.0  # seconds in which Ray notices that a process has died


class Gang:
    """The worker of this process and the workers of the other hosts, each in a bundle of the placement group.

    All workers run the same trials in the same order. The worker of this process writes records and progress. If
    another worker fails, this worker would wait for it in collective operations forever. Therefore all processes end,
    and Tune runs the trial again in a new gang. If only this process's worker raises an error, the trial fails. Raises
    Refused if a machine cannot run trials. More than one host is experimental: it was tested on CPU processes only.
    """

    def __init__(self, check: MachineCheck, settings: Settings, resources: dict[str, float]):
        out, self.check = str(check.out), check
        self._refuse_problems(checked(check), *ray.get([self._checked(i) for i in range(1, settings.hosts)]))
        self.worker, self.broken = Worker(out, settings), False
        self.others = [self._other(out, settings, resources, i) for i in range(1, settings.hosts)]
        if self.others:
            address = f"{ray.util.get_node_ip_address()}:{_free_port()}"
            joined = [other.join.remote(address, i) for i, other in enumerate(self.others, 1)]
            self.worker.join(address, 0)
            ray.get(joined)
        else:
            self.worker.stop_on_sigterm()
        try:
            self.worker.prepare()
        except InputError as error:
            raise Refused(node_id(), f"{socket.gethostname()} cannot run the sweep: {error}") from None

    @staticmethod
    def _in_bundle(bundle: int) -> PlacementGroupSchedulingStrategy:
        group = ray.util.get_current_placement_group()
        assert group is not None  # Tune gives every trial a placement group
        return PlacementGroupSchedulingStrategy(group, bundle)

    def _checked(self, bundle: int):
        return ray.remote(checked).options(num_cpus=0, scheduling_strategy=self._in_bundle(bundle)).remote(self.check)

    @staticmethod
    def _refuse_problems(*nodes: tuple[str, str | None]) -> None:
        for node, problem in nodes:
            if problem:
                raise Refused(node, problem)

    def _other(self, out: str, settings: Settings, resources: dict[str, float], bundle: int):
        options = {"scheduling_strategy": self._in_bundle(bundle)} | as_options(resources)
        return ray.remote(Worker).options(**options).remote(out, settings)

    def run_trial(self, trial: dict) -> dict:
        """Runs a trial on all workers and returns the report of this process's worker.

        Raises Refused if this machine no longer sees the sweep's files, or if the disk of its own copy is full.
        """
        if self.broken:
            end(Reason.GANG_BROKEN)
        if self.check.bucket is None:  # `joined_copy` checks a worker's own copy of a sweep in a bucket
            self._refuse_problems(checked(self.check))
        if not self.others:
            try:
                return self.worker.run_trial(trial)
            except OSError as error:
                if self.worker.joined and is_full(error):  # the disk of this machine, not a shared disk
                    raise Refused(node_id(), one_line(error)) from error
                raise
        # Computed once, because records that appear during training would give the other workers another list.
        trial = trial | {"lanes": self.worker.unfinished(trial["lanes"])}
        pending = [other.run_trial.remote(trial) for other in self.others]
        threading.Thread(target=self._end_with, args=(pending, trial["id"]), daemon=True).start()
        try:
            report = self.worker.run_trial(trial)
        except Exception as error:
            self.broken = True
            if any(map(_died, pending)):  # this process ends too, so that Tune retries the trial
                write_whole(why_path(self.worker.out, trial["id"]), one_line(error))
                end(Reason.GANG_BROKEN)
            self.end()
            raise
        ray.get(pending)
        return report

    def _end_with(self, pending: list, trial: str) -> None:
        """Ends this process if another worker of the gang fails: this worker would wait for it forever."""
        try:
            ray.get(pending)
        except Exception as error:
            if not self.broken:
                cause = getattr(error, "cause", None) or error
                logging.error("another worker of the gang failed: %s", one_line(cause))
                write_whole(why_path(self.worker.out, trial), one_line(cause))
                end(Reason.GANG_BROKEN)

    def end(self) -> None:
        """Ends the other workers and removes this worker's own copy of the sweep. This process continues."""
        for other in self.others:
            ray.kill(other)
        self.worker.leave()


def _died(answer) -> bool:
    """Whether the process of a worker has ended. Waits up to `NOTICE` seconds."""
    try:
        ray.get(answer, timeout=NOTICE)
    except ray.exceptions.RayActorError:
        return True
    except Exception:  # the process still runs: it raised an error, or it waits for the other workers
        return False
    return False


def why_path(out: Path, trial: str) -> Path:
    """The path of the file with the reason why a gang ended during a trial."""
    return Path(out) / "workers" / f"{trial}.why"


def as_options(resources: dict[str, float]) -> dict:
    """The options of a Ray actor with these resources (name → amount)."""
    return {
        "num_cpus": resources.get("CPU", 0),
        "num_gpus": resources.get("GPU", 0),
        "resources": {name: amount for name, amount in resources.items() if name == "TPU"},
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]
