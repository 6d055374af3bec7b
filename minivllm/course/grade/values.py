"""What crosses between a marker and a part process: JSON beside raw tensor bytes, and nothing executable.

Numbers, text and tuples are copied. Lists, dicts and tensors are copied too, but keep their identity: each
has a number, so that the same list sent twice is the same list there, and what one side writes into it
reaches the other with the next message. Anything else stays at home and is a `Remote` on the other side.
What a part process sends is checked before it is used: kinds, dtypes, shapes against byte counts, sizes.

A part may also set attributes of an object that stays at home, but only those that the object's class
names in `parts_may_set`, and only to plain values (see rpc.py).
"""

from __future__ import annotations

from typing import Any

import torch

from ...request import Status
from .tensors import DTYPES, NAMES, BadMessage, from_bytes, overwrite, to_bytes

ROOT = 1  # the number of the part itself


class Remote:
    """An object of the other side. It can be called, and its public attributes read; a part can set those
    that the other side allows."""

    def __init__(self, link: Any, number: int, kind: str, is_callable: bool) -> None:
        self.__dict__.update(_link=link, _number=number, _kind=kind, _is_callable=is_callable)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._link.call(self._number, "__call__", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self._kind!r} object has no attribute {name!r}")
        return self._link.get(self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or self._link.careful:
            raise AttributeError(f"attribute {name!r} of {self._kind!r} cannot be set from here")
        self._link.set(self._number, name, value)

    def __len__(self) -> int:
        return self._link.call(self._number, "__len__", (), {})

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        return self._link.call(self._number, "__getitem__", (key,), {})

    def __iter__(self) -> Any:
        return iter(self._link.call(self._number, "__iter__", (), {}))

    def __contains__(self, item: Any) -> bool:
        return item in list(self)

    def __repr__(self) -> str:
        return f"an object of type {self._kind}"


class Border:
    """One side's table of what has crossed. `careful` is the marker's side: there a peer's message may be
    hostile. Numbers of the marker's objects are even, those of the part's are odd."""

    def __init__(self, link: Any, careful: bool) -> None:
        self.link, self.careful = link, careful
        self.next_number = 2 if careful else 3
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}  # id of an object → its number
        self.seen: dict[int, Any] = {}  # number → what it was when both sides agreed
        self.in_progress: list[set[int]] = []  # numbers lent to each call that has not returned

    def forget(self) -> None:
        """Drop everything but the part itself."""
        root = self.objects.get(ROOT)
        for table in (self.objects, self.numbers, self.seen):
            table.clear()
        if root is not None:
            self.keep(ROOT, root)

    def keep(self, number: int, value: Any) -> None:
        self.objects[number] = value
        self.numbers[id(value)] = number

    def encode(self, value: Any, blob: bytearray, lend: bool = True) -> Any:
        """JSON for the value; tensor bytes go to the end of `blob`. With `lend` false, lists and tensors
        are plain copies."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Remote) and value._link is self.link:
            return {"kind": "ref", "number": value._number}
        number = self.numbers.get(id(value))
        if number is not None and self._is_theirs(number):
            return {"kind": "ref", "number": number}
        if isinstance(value, tuple):
            return {"kind": "tuple", "items": [self.encode(item, blob, lend) for item in value]}
        if type(value) in (set, frozenset):
            return {"kind": "set", "items": [self.encode(item, blob, lend) for item in value]}
        if type(value) is Status:
            return {"kind": "status", "name": value.value}
        if type(value) is range:
            return {"kind": "range", "items": [value.start, value.stop, value.step]}
        if isinstance(value, torch.dtype) and value in NAMES:
            return {"kind": "dtype", "name": NAMES[value]}
        if isinstance(value, torch.device):
            return {"kind": "device"}
        if type(value) in (list, dict, torch.Tensor, torch.nn.Parameter):
            shared = lend and (self.careful or type(value) in (list, dict))
            return self._contents(value, blob, self._number_of(value) if shared else None, lend)
        number = self._number_of(value)
        kind = type(value).__name__
        return {"kind": "object", "number": number, "type": kind, "callable": callable(value)}

    def decode(self, data: Any, blob: bytes) -> Any:
        """The value. `BadMessage` if it is none."""
        if data is None or type(data) in (bool, int, float, str):
            return data
        try:
            return self._decode(data, blob)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
            raise BadMessage(f"{type(error).__name__}: {error}") from None

    def changes(self, blob: bytearray) -> list[Any]:
        """Contents of what this side has written into since both sides agreed."""
        if self.careful:
            mine = [n for n in self.seen if self.seen[n] is not None]
        else:
            mine = [n for numbers in self.in_progress for n in numbers]
        found = []
        for number in mine:
            if not _agrees(self.seen[number], self._state_of(self.objects[number])):
                found.append(self._contents(self.objects[number], blob, number, True))
        return found

    def apply(self, changes: Any, blob: bytes) -> None:
        """Write the other side's changes into this side's objects. A part may only change what is lent to
        a call in progress."""
        if type(changes) is not list:
            raise BadMessage("changes are no list")
        allowed = set(self.seen)
        if self.careful:
            allowed &= set().union(*self.in_progress)
        for change in changes:
            if type(change) is not dict or change.get("number") not in allowed:
                raise BadMessage("a change of something that was not lent")
            self.decode({**change, "change": True}, blob)

    def _is_theirs(self, number: int) -> bool:
        return number % 2 == (1 if self.careful else 0)

    def _number_of(self, value: Any) -> int:
        number = self.numbers.get(id(value))
        if number is None:
            number, self.next_number = self.next_number, self.next_number + 2
            self.keep(number, value)
        if self.careful and self.in_progress:
            self.in_progress[-1].add(number)
        return number

    def _contents(self, value: Any, blob: bytearray, number: int | None, lend: bool) -> Any:
        data: dict[str, Any] = {} if number is None else {"number": number}
        if isinstance(value, list):
            data |= {"kind": "list", "items": [self.encode(item, blob, lend) for item in value]}
        elif isinstance(value, dict):
            pairs = [[self.encode(k, blob, lend), self.encode(v, blob, lend)] for k, v in value.items()]
            data |= {"kind": "dict", "items": pairs}
        else:
            data |= to_bytes(value, blob)
        if number is not None:
            self.seen[number] = self._state_of(value)
        return data

    def _decode(self, data: Any, blob: bytes) -> Any:
        if data is None or type(data) in (bool, int, float, str):
            return data
        kind, number = data["kind"], data.get("number")
        if number is not None and type(number) is not int:
            raise BadMessage("a number that is none")
        if kind == "ref":
            return self.objects[number]
        if kind == "tuple":
            return tuple(self._decode(item, blob) for item in data["items"])
        if kind == "set":
            return {self._decode(item, blob) for item in data["items"]}
        if kind == "status":
            return Status(data["name"])
        if kind == "range":
            return range(*data["items"])
        if kind == "dtype":
            return DTYPES[data["name"]]
        if kind == "device":
            return torch.device("cpu")
        if number is not None and not self._is_theirs(number) and not data.get("change"):
            raise BadMessage("a number of this side")
        if kind == "object" and number is not None:
            return self._remote(number, str(data["type"])[:80], bool(data["callable"]))
        if kind == "tensor":
            value = self._tensor(number, from_bytes(data, blob))
        elif kind in ("list", "dict"):
            value = self._container(list if kind == "list" else dict, number, data["items"], blob)
        else:
            raise BadMessage(f"a value of kind {kind!r:.40}")
        if number is not None:
            self.seen[number] = self._state_of(value)
            if self.in_progress and not self.careful:
                self.in_progress[-1].add(number)
        return value

    def _remote(self, number: int, kind: str, is_callable: bool) -> Remote:
        known = self.objects.get(number)
        if not isinstance(known, Remote):
            known = type(kind, (Remote,), {})(self.link, number, kind, is_callable)
            self.objects[number] = known
        return known

    def _container(self, kind: type, number: int | None, items: Any, blob: bytes) -> Any:
        value = self.objects.get(number) if number is not None else None
        if type(value) is not kind:
            value = kind()
            if number is not None:
                self.keep(number, value)
        if kind is list:
            value[:] = [self._decode(item, blob) for item in items]
        else:
            fresh = {self._decode(k, blob): self._decode(v, blob) for k, v in items}
            value.clear()
            value.update(fresh)
        return value

    def _tensor(self, number: int | None, fresh: torch.Tensor) -> torch.Tensor:
        value = self.objects.get(number) if number is not None else None
        if isinstance(value, torch.Tensor) and value.dtype == fresh.dtype:
            overwrite(value, fresh)
            return value
        if number is not None:
            self.keep(number, fresh)
        return fresh

    def _state_of(self, value: Any) -> Any:
        """What tells whether it was written into: torch's own count for the marker's tensors, which only
        its own code writes; every byte for a part's, which may be written by way of numpy."""
        if isinstance(value, list):
            return tuple(value)
        if isinstance(value, dict):
            return tuple(item for pair in value.items() for item in pair)
        if self.careful:
            return None if value.is_inference() else value._version
        blob = bytearray()
        to_bytes(value, blob)
        return blob


def _agrees(before: Any, now: Any) -> bool:
    if isinstance(before, tuple) and isinstance(now, tuple):
        return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))
    return before == now
