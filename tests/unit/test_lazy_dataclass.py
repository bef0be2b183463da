"""Classes whose methods are made when they are called behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from magnetar import lazy_dataclass

Decorator = Callable[..., Any]
FORMS = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for kw_only in (False, True)
]


def _pair(decorate: Decorator, options: dict[str, bool]) -> tuple[type[Any], type[Any]]:
    """A class with fields of all kinds, and one below it."""

    @decorate(**options)
    class Base:
        """A base."""

        first: int
        second: str = "two"
        third: list[int] = field(default_factory=list, compare=False)
        secret: str = field(default="s", repr=False)
        counted: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "counted", self.counted + 1)

    @decorate(**options)
    class Below(Base):
        second: str = "other"
        fourth: int = 4

    return Base, Below


@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize("index", [0, 1])
def test_objects_are_those_of_the_standard_library(options: dict[str, bool], index: int) -> None:
    made = _pair(lazy_dataclass.dataclass, options)[index]
    expected = _pair(dataclasses.dataclass, options)[index]

    def seen(kind: type[Any]) -> list[object]:
        one, same, other = kind(first=1), kind(first=1, third=[5]), kind(first=2, second="x")
        return [
            repr(one),
            repr(other),
            one == same,
            one == other,
            one != other,
            one == 1,
            kind.__hash__ is None,
            kind.__hash__ is not None and hash(one) == hash(same),
            kind.__hash__ is not None and len({one, same, other}),
            dataclasses.asdict(other),
            repr(dataclasses.replace(other, second="y")),
            kind.__match_args__,
            [each.name for each in dataclasses.fields(kind)],
            repr(copy.copy(other)),
            repr(copy.deepcopy(other)),
            hasattr(one, "__dict__"),
        ]

    assert seen(made) == seen(expected)
    # Methods are in their places now.
    assert seen(made) == seen(expected)


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_wrong_arguments_are_refused_alike(options: dict[str, bool]) -> None:
    for arguments, named in [((), {}), ((1, 2, 3, 4, 5), {}), ((), {"first": 1, "counted": 2})]:
        texts = []
        for decorate in (lazy_dataclass.dataclass, dataclasses.dataclass):
            kind = _pair(decorate, options)[0]
            with pytest.raises(TypeError) as refused:
                kind(*arguments, **named)
            texts.append(str(refused.value))
        assert texts[0] == texts[1]


@pytest.mark.parametrize("slots", [False, True])
def test_a_frozen_object_stays_as_it_is(slots: bool) -> None:
    one = _pair(lazy_dataclass.dataclass, {"frozen": True, "slots": slots})[1](1)
    for change in (
        lambda: setattr(one, "first", 2),
        lambda: setattr(one, "fourth", 2),
        lambda: delattr(one, "first"),
    ):
        with pytest.raises(FrozenInstanceError):
            change()
    assert one.first == 1


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Pickled:
    name: str
    numbers: tuple[int, ...] = ()


def test_frozen_objects_with_slots_are_pickled() -> None:
    one = Pickled("a", (1, 2))
    assert pickle.loads(pickle.dumps(one)) == one


def test_methods_of_the_class_itself_stay() -> None:
    @lazy_dataclass.dataclass
    class Own:
        name: str

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (repr(Own("a")), Own("a") == Own("b"), hash(Own("a"))) == ("own", True, 7)


def test_a_class_that_compares_by_itself_and_has_no_hash_gets_one_if_it_is_frozen() -> None:
    def hashes(decorate: Decorator, frozen: bool) -> bool:
        @decorate(frozen=frozen)
        class Own:
            name: str

            def __eq__(self, other: object) -> bool:
                return True

        return Own.__hash__ is not None and hash(Own("a")) == hash(Own("a"))

    for frozen in (False, True):
        assert hashes(lazy_dataclass.dataclass, frozen) == hashes(dataclasses.dataclass, frozen)


def test_a_frozen_class_that_sets_attributes_is_refused() -> None:
    with pytest.raises(TypeError, match="sets attributes"):

        @lazy_dataclass.dataclass(frozen=True)
        class Own:
            name: str

            def __setattr__(self, name: str, value: object) -> None: ...


def test_a_method_is_made_at_its_first_call() -> None:
    kind = _pair(lazy_dataclass.dataclass, {"frozen": True, "slots": True})[0]
    before = kind.__init__
    kind(1)
    made = kind.__init__
    assert made is not before
    kind(2)
    assert kind.__init__ is made
    assert made.__qualname__.endswith("Base.__init__")
