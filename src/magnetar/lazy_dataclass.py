"""A ``dataclass`` decorator that creates each method when it is first called.

The decorator of the standard library compiles ``__init__``, ``__repr__``, ``__eq__``, ``__hash__`` and, for a
frozen class, ``__setattr__`` and ``__delattr__``, which takes 0.5 ms for a class of five fields. This was a
quarter of the start time of a process, mostly for methods that the process never calls. With this decorator,
such a class takes 0.05 ms. The first call of a method creates the method and stores it in the class, so later
calls are as fast as with the standard decorator.

Public packages use the decorator of the standard library, because ``help`` shows the signatures of its
methods.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

    from _typeshed import DataclassInstance
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False):
        """Does the same as ``dataclasses.dataclass``, with fewer options."""

        def decorate(cls):
            return _decorated(cls, frozen, slots, kw_only)

        return decorate if cls is None else decorate(cls)


def _decorated(
    cls: type[DataclassInstance], frozen: bool, slots: bool, kw_only: bool
) -> type[DataclassInstance]:
    own = set(vars(cls))
    if frozen and own & {"__setattr__", "__delattr__"}:
        raise TypeError(f"{cls.__qualname__} is frozen and sets attributes by methods of its own")
    if cls.__doc__ is None:
        # Otherwise the standard library composes a text from the signature of __init__.
        cls.__doc__ = cls.__name__
    # A class with __eq__ and without __hash__ has None there.
    hashed = "__hash__" in own and (cls.__hash__ is not None or "__eq__" not in own)
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    for name in {"__init__", "__repr__", "__eq__"} - own:
        setattr(made, name, _made_when_called(made, name, frozen))
    if not hashed:
        hashing = _made_when_called(made, "__hash__", frozen) if frozen else None
        setattr(made, "__hash__", hashing)  # noqa: B010 - the name is a method's
    if frozen:
        _freeze(made, own)
    return made


def _made_when_called(cls: type[DataclassInstance], name: str, frozen: bool) -> Callable[..., object]:
    def first(self: DataclassInstance, *arguments: object, **named: object) -> object:
        method = _method(cls, name, frozen)
        setattr(cls, name, method)
        return method(self, *arguments, **named)

    return first


def _method(cls: type[DataclassInstance], name: str, frozen: bool) -> Callable[..., object]:
    """Returns the method that the standard library makes for a class with the same fields."""
    method = _init(cls, frozen) if name == "__init__" else _other_method(cls, name, frozen)
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


def _init(cls: type[DataclassInstance], frozen: bool) -> Callable[..., object]:
    # Nearly all methods that a start makes are __init__. The standard library makes it only together with
    # all methods of a class, which takes four times as long.
    outside: dict[str, object] = {"__set__": object.__setattr__, "__missing__": dataclasses.MISSING}
    arguments: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for each in dataclasses.fields(cls):
        name, value, default = each.name, each.name, ""
        if each.default_factory is not dataclasses.MISSING:
            outside[f"__make_{name}__"] = each.default_factory
            default = "=__missing__"
            value = f"__make_{name}__()"
            if each.init:
                value = f"{value} if {name} is __missing__ else {name}"
        elif each.default is not dataclasses.MISSING:
            outside[f"__default_{name}__"] = each.default
            default = f"=__default_{name}__"
            if not each.init:
                if "__slots__" not in vars(cls):
                    # The class has it.
                    continue
                value = f"__default_{name}__"
        elif not each.init:
            continue
        if each.init:
            (named if each.kw_only else arguments).append(name + default)
        body.append(f'__set__(self, "{name}", {value})' if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    signature = ", ".join(["self", *arguments, *(["*", *named] if named else [])])
    lines = [f"def __init__({signature}):", *(f" {line}" for line in body or ["pass"])]
    # The names are those of a class's fields.
    made: dict[str, Callable[..., object]] = {}
    exec("\n".join(lines), outside, made)  # nosec B102
    return made["__init__"]


def _other_method(cls: type[DataclassInstance], name: str, frozen: bool) -> Callable[..., object]:
    fields = [
        (
            each.name,
            each.type,
            dataclasses.field(
                default=each.default,
                default_factory=each.default_factory,
                init=each.init,
                repr=each.repr,
                hash=each.hash,
                compare=each.compare,
                kw_only=each.kw_only,
            ),
        )
        for each in dataclasses.fields(cls)
    ]
    twin = dataclasses.make_dataclass(
        cls.__name__,
        fields,
        # Without a docstring, the standard library composes one from a signature.
        namespace={"__doc__": cls.__name__},
        init=False,
        repr=name == "__repr__",
        eq=name != "__repr__",
        frozen=frozen and name == "__hash__",
    )
    method: Callable[..., object] = vars(twin)[name]
    return method


def _freeze(cls: type[DataclassInstance], own: set[str]) -> None:
    names = frozenset(each.name for each in dataclasses.fields(cls))
    # The methods of its bases.
    set_it, delete_it = cls.__setattr__, cls.__delattr__

    def refuse_to_set(self: DataclassInstance, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        set_it(self, name, value)

    def refuse_to_delete(self: DataclassInstance, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        delete_it(self, name)

    methods: dict[str, object] = {"__setattr__": refuse_to_set, "__delattr__": refuse_to_delete}
    if "__slots__" in vars(cls):
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name in methods.keys() - own:
        setattr(cls, name, methods[name])


def _state(self: DataclassInstance) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: DataclassInstance, state: list[object]) -> None:
    # What is pickled or copied is frozen.
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
