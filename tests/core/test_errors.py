"""The tree of errors."""

from __future__ import annotations

import inspect
import pickle

import pytest

from logitloom import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


def test_every_error_is_exported_in_order():
    defined = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]
    assert sorted(errors.__all__) == errors.__all__
    assert set(defined) == set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_error_is_a_logitloom_error_and_a_builtin_one(cls):
    assert issubclass(cls, (errors.LogitloomError, Warning))
    assert cls.__doc__
    if cls is not errors.LogitloomError:
        builtin = [c for c in cls.__mro__ if c.__module__ == "builtins" and c not in (Exception, BaseException, object)]
        assert builtin, "derives from no built-in error"
    own = vars(cls).get("__init__")
    extra = [0] * (len(inspect.signature(own).parameters) - 2) if own else []
    assert str(cls("a sentence.", *extra)) == "a sentence."


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_error_survives_the_way_to_another_process(cls):
    own = vars(cls).get("__init__")
    error = cls("a sentence.", *([7] * (len(inspect.signature(own).parameters) - 2) if own else []))
    sent = pickle.loads(pickle.dumps(error))
    assert (type(sent), str(sent), vars(sent)) == (cls, "a sentence.", vars(error))
