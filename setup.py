"""Puts the committed evidence of `lvp.parametrization` into wheel and sdist. pyproject.toml has everything else."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

EVIDENCE = "experiments/results/evidence.json"


class BuildWithEvidence(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:  # in a clone lvp reads the original
            self.copy_file(EVIDENCE, str(Path(self.build_lib, "lvp", "parametrization", "evidence.json")))

    def get_source_files(self):
        return [*super().get_source_files(), EVIDENCE]  # the files of the sdist


setup(cmdclass={"build_py": BuildWithEvidence})
