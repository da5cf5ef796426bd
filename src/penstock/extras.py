"""Packages that only some parts of Penstock need, and the extras that bring them."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from penstock.errors import MissingExtraError

# Package as it is imported -> the extra of pyproject.toml that brings it.
EXTRAS = {
    "scipy": "models",
    "statsmodels": "models",
    "ortools": "optimal",
    "matplotlib": "plots",
    "pyspark": "spark",
    "prometheus_client": "prometheus",
    "sqlalchemy": "lookup",
    "psycopg": "lookup",
    "pyoxigraph": "linked",
}


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is looked for, not loaded.

    >>> from penstock.extras import is_installed
    >>> is_installed("numpy"), is_installed("no_such_package")
    (True, False)
    """
    if sys.modules.get(package) is not None:
        return True
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def require(package: str, what: str, extra: str | None = None) -> None:
    """Raise a `MissingExtraError` unless a package is installed; `what` is the part that needs it.

    Call it before any work, and before the import itself.

    >>> from penstock.extras import require
    >>> require("numpy", "A join")
    >>> require("no_such_package", "Plan.plot()", extra="plots")
    Traceback (most recent call last):
    penstock.errors.MissingExtraError: Plan.plot() needs no_such_package, which is not installed; run:
    pip install 'penstock[plots]'
    """
    if not is_installed(package):
        command = f"pip install 'penstock[{extra or EXTRAS[package]}]'"
        error = MissingExtraError(f"{what} needs {package}, which is not installed; run: {command}")
        error.name = package
        raise error
