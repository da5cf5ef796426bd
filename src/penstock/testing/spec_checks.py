"""What holds for the spec of a policy: it is frozen, documented, and survives pickling and spelling."""

from __future__ import annotations

import ast
import dataclasses
import pickle

from penstock import policies
from penstock.policies import Policy
from penstock.policies.candidates import OPERATORS, can_be_candidate
from penstock.testing.expectation import expect


def check_spec_is_documented(policy: Policy) -> None:
    """It has a name, a line for lists, the paper it is from, and a docstring."""
    kind = type(policy)
    for attribute in ("name", "summary", "paper"):
        expect(getattr(policy, attribute), f"{kind.__name__}.{attribute} is not set")
    expect(kind.__doc__, f"{kind.__name__} has no docstring")


def check_spec_is_frozen(policy: Policy) -> None:
    """It is a frozen dataclass, so it can be hashed and shared."""
    for field in dataclasses.fields(policy):
        try:
            setattr(policy, field.name, getattr(policy, field.name))
        except dataclasses.FrozenInstanceError:
            continue
        expect(False, f"the option {field.name} can be changed; the class must be a frozen dataclass")
    expect(hash(policy) == hash(dataclasses.replace(policy)), "equal policies have different hashes")


def check_spec_is_registered(policy: Policy) -> None:
    """It is found by its name."""
    names = [kind.name for kind in policies.registered("any")]
    expect(policy.name in names, f"there is no policy {policy.name!r}; decorate its class with register")


def check_spec_survives(policy: Policy) -> None:
    """It is the same after pickling, spelling and evaluating its repr."""
    expect(pickle.loads(pickle.dumps(policy)) == policy, "a pickled copy is not equal to the policy")
    expect(
        policies.get(policy.spell()) == policy,
        f"get({policy.spell()!r}) gives {policies.get(policy.spell())!r}, not {policy!r}",
    )
    call = ast.parse(repr(policy), mode="eval").body
    expect(isinstance(call, ast.Call), f"its repr is {policy!r}, which is not a call of its class")
    assert isinstance(call, ast.Call)
    try:
        options = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except ValueError:  # an option that is an object, such as a model, which has its own repr
        return
    expect(type(policy)(**options) == policy, f"its repr {policy!r} gives another policy")


def check_candidate(policy: Policy) -> None:
    """Where `auto` would try its class by default, `auto` can follow it."""
    operators = vars(type(policy)).get("candidate_for", {})
    unknown = ", ".join(sorted(set(operators) - set(OPERATORS)))
    expect(not unknown, f"candidate_for names {unknown}; allowed: {', '.join(OPERATORS)}")
    for operator in operators:
        expect(
            can_be_candidate(type(policy)(), operator),
            f"it cannot be a candidate of auto for the operator {operator}",
        )


SPEC_CHECKS = (
    check_spec_is_documented,
    check_spec_is_frozen,
    check_spec_is_registered,
    check_spec_survives,
    check_candidate,
)
