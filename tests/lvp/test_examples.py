"""The examples in the docstrings of the functions that users call print what they say."""

import doctest

import pytest

from lvp import optim, parametrization, roles
from lvp.parametrization.recommend import recommend
from lvp.parametrization.scaling import scale

FUNCTIONS = [
    optim.adamw,
    optim.by_role,
    optim.coupled_adam,
    optim.describe,
    optim.initialize,
    optim.lion_a,
    optim.lion_ar,
    optim.parametrized,
    optim.representation_change_factor,
    optim.rotational_adamw,
    optim.scale_by_role,
    optim.sign_sgd,
    optim.transfer,
    optim.trapezoid,
    parametrization.attenuation,
    parametrization.embedding_ratio,
    parametrization.row_multiplier,
    parametrization.table,
    parametrization.uniform,
    recommend,
    roles.infer,
    scale,
]


def failures(function) -> str:
    """What the examples of a function print that its docstring does not say; empty if they agree."""
    (test,) = doctest.DocTestFinder(exclude_empty=False, recurse=False).find(function, function.__name__, globs={})
    if not test.examples:
        return f"{function.__name__} has no example"
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return "".join(report)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_example_of_a_docstring_prints_what_it_says(function):
    assert failures(function) == ""


def test_a_wrong_example_and_a_missing_example_are_found():
    def wrong():
        """>>> 1 + 1
        3
        """

    def silent():
        """A function without an example."""

    assert "Got:\n    2" in failures(wrong)
    assert failures(silent) == "silent has no example"
