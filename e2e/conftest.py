"""Owns the report that `cargo xtask test` reads, and the sandboxes that tests share the making of."""

import os
import pathlib

import pytest

from harness import control

REPORT = os.environ.get("COFFERDAM_E2E_REPORT")


def pytest_runtest_logreport(report):
    """Writes a line a test: verdict and name. Only the process that has all reports writes."""
    if REPORT is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when == "call" or report.outcome != "passed":
        with pathlib.Path(REPORT).open("a", encoding="utf-8") as file:
            file.write(f"{report.outcome} {report.nodeid}\n")


def pytest_collectreport(report):
    """A file that cannot be collected is a failure, not an absence."""
    if REPORT is not None and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with pathlib.Path(REPORT).open("a", encoding="utf-8") as file:
            file.write(f"error {report.nodeid}\n")


@pytest.fixture
def box():
    """A sandbox in plain HTTP, gone after the test."""
    with control.box() as made:
        yield made


@pytest.fixture
def boxes():
    """Makes sandboxes that are gone after the test."""
    made = []

    def make(**body):
        made.append(control.Box(**body))
        return made[-1]

    yield make
    for one in made:
        one.close()
