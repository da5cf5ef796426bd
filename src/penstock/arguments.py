"""Check the options that users give: texts of a list, numbers, and yes or no.

Each check returns the value in a plain type, or raises an error that says what was given and what is allowed.
Anything may be given: an array, whose comparison with a text is an array, or an object that compares with
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.errors import LONGEST, PenstockError, hint

MOST = 2**62 - 1  # of whole numbers that are counted with 64 bits
MOST_BYTES = 2**48  # more than any machine can address


def shown(given: Any) -> str:
    """Return what was given as a message quotes it: on one line, and not for pages.

    >>> import numpy as np
    >>> from penstock.arguments import shown
    >>> shown("x"), shown(np.zeros(100))
    ("'x'", 'array([0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0....')
    """
    text = " ".join(repr(given).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def one_of(
    name: str,
    given: Any,
    allowed: Iterable[str],
    error: type[PenstockError] = PenstockError,
    say: str = "",
) -> str:
    """Return a text that is one of those allowed; `say` is how the message names the option.

    >>> from penstock.arguments import one_of
    >>> one_of("step", "tick", ("arrival", "tick"))
    'tick'
    >>> one_of("step", "tock", ("arrival", "tick"))
    Traceback (most recent call last):
        ...
    penstock.errors.PenstockError: step='tock' is not known; did you mean 'tick'? Allowed: arrival, tick
    """
    words = list(allowed)
    if not isinstance(given, str) or given not in words:
        wrong = given if isinstance(given, str) else ""
        raise error(f"{say or name + '='}{shown(given)} is not known{hint(wrong, words)}")
    return str(given)


def is_number(given: Any) -> bool:
    """Whether this is one number, which True is not.

    >>> import numpy as np
    >>> from penstock.arguments import is_number
    >>> is_number(2.5), is_number(np.int8(3)), is_number(True), is_number("3"), is_number(np.zeros(3))
    (True, True, False, False, False)
    """
    return isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)


def whole(
    name: str,
    given: Any,
    least: int = 0,
    most: int = MOST,
    error: type[PenstockError] = PenstockError,
    what: str = "a whole number",
) -> int:
    """Return a whole number within limits, both included.

    >>> from penstock.arguments import whole
    >>> whole("seed", 7)
    7
    >>> whole("seed", 1.5)
    Traceback (most recent call last):
        ...
    penstock.errors.PenstockError: seed=1.5 is not allowed; it must be a whole number from 0 up.
    """
    fine = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not fine or not least <= given <= most:
        limits = f"from {least} up" if most == MOST or (fine and given < least) else f"from {least} to {most}"
        up = ", below 2^62" if most == MOST and fine and given > most else ""
        raise error(f"{name}={shown(given)} is not allowed; it must be {what} {limits}{up}.")
    return int(given)


def number(
    name: str,
    given: Any,
    least: float = -math.inf,
    most: float = math.inf,
    error: type[PenstockError] = PenstockError,
    what: str = "",
) -> float:
    """Return a finite number within limits, both included; `what` is how the message names what is allowed.

    >>> from penstock.arguments import number
    >>> number("row_bytes", 64, least=0)
    64.0
    >>> number("row_bytes", float("nan"), least=0)
    Traceback (most recent call last):
        ...
    penstock.errors.PenstockError: row_bytes=nan is not allowed; it is a finite number from 0 up.
    """
    if not is_number(given) or not least <= given <= most or not math.isfinite(given):
        limits = (
            "" if least == -math.inf else f" from {least:g} " + (f"to {most:g}" if most < math.inf else "up")
        )
        raise error(f"{name}={shown(given)} is not allowed; it is {what or 'a finite number' + limits}.")
    return float(given)


def probability(name: str, given: Any, also: str = "", error: type[PenstockError] = PenstockError) -> float:
    """Return a probability; `also` is what else is allowed, for the message.

    >>> from penstock.arguments import probability
    >>> probability("drop_rate", 0.5)
    0.5
    """
    return number(name, given, 0, 1, error, f"a probability from 0 to 1{also}")


def draws(seed: Any) -> np.random.Generator:
    """Return what draws random numbers: from a whole number, from anything else that NumPy takes.

    >>> from penstock.arguments import draws
    >>> draws(7).integers(100) == draws(7).integers(100)
    np.True_
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise PenstockError(
            f"seed={shown(seed)} is not allowed; it is a whole number from 0 up, or a NumPy generator."
        ) from error


def flag(name: str, given: Any, error: type[PenstockError] = PenstockError) -> bool:
    """Return True or False, and nothing that only counts as such.

    >>> from penstock.arguments import flag
    >>> flag("collect", True)
    True
    >>> flag("collect", "no")
    Traceback (most recent call last):
        ...
    penstock.errors.PenstockError: collect='no' is not allowed; give True or False.
    """
    if not isinstance(given, bool | np.bool_):
        raise error(f"{name}={shown(given)} is not allowed; give True or False.")
    return bool(given)


def flags(**given: Any) -> None:
    """Reject anything but True and False.

    >>> from penstock.arguments import flags
    >>> flags(collect=True, log=False)
    """
    for name, value in given.items():
        flag(name, value)
