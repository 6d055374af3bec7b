"""Calls across a socket, in both directions, one at a time: whoever waits for an answer serves meanwhile.

A rule calls the part; the part may call the model or the cache that it was given, and these may call the
part's `attend` again, to any depth up to `MAX_DEPTH`. An exception of one side is raised on the other by
its type's name and its text. Nothing that arrives is executed: a part can call what was lent to it, read
its public plain attributes, and set those that the lent object's class names in `parts_may_set`, to numbers,
text, None or a request's status. That is all.
"""

from __future__ import annotations

import builtins
import json
import socket
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

from ...request import Status
from ..kernel_errors import in_the_kernel
from .tensors import BadMessage
from .values import Border, Remote

HEADER = struct.Struct(">II")
MAX_JSON, MAX_BLOB = 4 << 20, 256 << 20
MAX_DEPTH = 40
SPECIAL = {"__call__", "__len__", "__getitem__", "__iter__"}
HIDDEN = (types.ModuleType, types.FrameType, types.CodeType, type)
SETTABLE = (type(None), bool, int, float, str, Status)
PLAIN_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)


class RemoteError(Exception):
    """An exception of the other side of a type that is not known here."""


class Endpoint:
    """One end of the socket. `careful` marks the end that must not trust the other. `wait` is called
    every tenth of a second while nothing comes, and may raise. `line_of` finds where in the part an
    exception was raised."""

    def __init__(
        self,
        sock: socket.socket,
        careful: bool,
        wait: Callable[[], None] = lambda: None,
        line_of: Callable[[BaseException], int | None] = lambda error: None,
    ) -> None:
        self.sock, self.careful, self.wait, self.line_of = sock, careful, wait, line_of
        self.border = Border(self, careful)
        self.raised: list[BaseException] = []  # this side's exceptions that went to the other
        sock.settimeout(0.1 if careful else None)

    def call(self, number: int, method: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.request({"do": "call", "of": number, "name": method}, args, kwargs)

    def get(self, number: int, name: str) -> Any:
        return self.request({"do": "get", "of": number, "name": name})

    def set(self, number: int, name: str, value: Any) -> None:
        self.request({"do": "set", "of": number, "name": name}, (value,))

    def request(self, message: dict[str, Any], args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Send, serve what comes meanwhile, and return the answer or raise it."""
        if len(self.border.in_progress) >= MAX_DEPTH:
            raise RecursionError(f"calls go to and fro more than {MAX_DEPTH} deep")
        self.border.in_progress.append(set())
        try:
            blob = bytearray()
            message["args"] = [self.border.encode(arg, blob) for arg in args]
            message["kwargs"] = [[k, self.border.encode(v, blob)] for k, v in (kwargs or {}).items()]
            self._send(message, blob)
            while True:
                answer, blob = self._receive()
                if answer["do"] == "result":
                    return self.border.decode(answer.get("value"), blob)
                if answer["do"] == "error":
                    raise self._error_from(answer)
                self.serve(answer, blob)
        finally:
            self.border.in_progress.pop()

    def serve_for_ever(self, requests: dict[str, Callable[..., Any]]) -> None:
        """Answer until the other side closes the socket. `requests` are further things that it may ask."""
        while True:
            try:
                message, blob = self._receive()
            except EOFError:
                return
            self.serve(message, blob, requests)

    def serve(self, message: Any, blob: bytes, requests: dict[str, Callable[..., Any]] | None = None) -> None:
        """Do what is asked and send the result, or the exception."""
        self.border.in_progress.append(set())
        out = bytearray()
        try:
            if len(self.border.in_progress) > MAX_DEPTH:
                raise RecursionError(f"calls go to and fro more than {MAX_DEPTH} deep")
            args = [self.border.decode(arg, blob) for arg in message.get("args", ())]
            kwargs = {str(k): self.border.decode(v, blob) for k, v in message.get("kwargs", ())}
            ask = (requests or {}).get(message["do"])
            value = ask(*args, **kwargs) if ask else self._do(message, args, kwargs)
            answer = {"do": "result", "value": self.border.encode(value, out, lend=not self.careful)}
        except BadMessage:
            raise
        except Exception as error:
            out.clear()
            answer = self._error_to(error)
        try:
            self._send(answer, out)
        except (TypeError, ValueError, RecursionError) as error:  # too long, or no JSON can be made of it
            self._send(self._error_to(error), bytearray())
        finally:
            self.border.in_progress.pop()

    def _do(self, message: Any, args: list, kwargs: dict[str, Any]) -> Any:
        name = message.get("name")
        if message["do"] not in ("call", "get", "set") or type(name) is not str:
            raise BadMessage(f"a message that asks to {message['do']!r:.40}")
        try:
            target = self.border.objects[message["of"]]
        except (KeyError, TypeError):
            raise BadMessage("a message about an object that was not lent") from None
        if isinstance(target, Remote) or (self.careful and type(target) in (list, dict)):
            raise BadMessage("a message about an object that is not here")
        if message["do"] == "get":
            return self._attribute(target, name)
        if message["do"] == "set":
            return self._set_attribute(target, name, *args)
        if name not in SPECIAL:
            raise BadMessage(f"a call of {name!r:.40}")
        if name == "__call__":
            return target(*args, **kwargs)
        if name == "__iter__":
            return list(target)
        return getattr(target, name)(*args)

    def _attribute(self, target: Any, name: str) -> Any:
        if self.careful and (name.startswith("_") or isinstance(target, PLAIN_FUNCTIONS)):
            raise AttributeError(f"{name} of a {type(target).__name__} is not for the part to read")
        value = getattr(target, name)
        if self.careful and isinstance(value, HIDDEN):
            raise AttributeError(f"{name} of a {type(target).__name__} is not for the part to read")
        return value

    def _set_attribute(self, target: Any, name: str, value: Any) -> None:
        """Only for a part, on what is lent to it: the names are the class's own, never the instance's."""
        if not self.careful:
            raise BadMessage("a message that asks a part's side to set something")
        if name not in getattr(type(target), "parts_may_set", ()) or type(value) not in SETTABLE:
            raise AttributeError(f"{name!r} of {type(target).__name__!r} cannot be set to that from here")
        setattr(target, name, value)

    def _error_to(self, error: Exception) -> dict[str, Any]:
        error = in_the_kernel(error)
        number = getattr(error, "_other_side", None)
        if number is None:
            self.raised.append(error)
        kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
        return {
            "do": "error",
            "kinds": kinds[:20],
            "text": str(error)[:2000],
            "line": self.line_of(error),
            "mine": len(self.raised) - 1 if number is None else None,
            "yours": number,
        }

    def _error_from(self, answer: Any) -> BaseException:
        """The very exception, if it came from this side; else one of the first type that is known here."""
        yours, kinds, text = answer.get("yours"), answer.get("kinds"), str(answer.get("text"))
        if type(yours) is int and 0 <= yours < len(self.raised):
            return self.raised[yours]
        if type(kinds) is not list:
            raise BadMessage("an exception of no type")
        kind = next(filter(None, map(_exception_named, kinds)), RemoteError)
        error = kind.__new__(kind)
        error.args = (text,)
        error.part_kind = str(kinds[0]).rpartition(".")[2][:80]
        error.part_line = answer.get("line")
        error._other_side = answer.get("mine")
        return error

    def _send(self, message: dict[str, Any], blob: bytearray) -> None:
        message["changes"] = self.border.changes(blob)
        data = json.dumps(message).encode()
        if len(data) > MAX_JSON or len(blob) > MAX_BLOB:
            raise ValueError(f"a message of {len(data) + len(blob)} bytes is too long to be sent")
        view = memoryview(HEADER.pack(len(data), len(blob)) + data + blob)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except TimeoutError:
                self.wait()
            except OSError:
                raise EOFError("the other side is gone") from None

    def _receive(self) -> tuple[Any, bytes]:
        num_json, num_blob = HEADER.unpack(self._read(HEADER.size))
        if num_json > MAX_JSON or num_blob > MAX_BLOB:
            raise BadMessage(f"a message of {num_json + num_blob} bytes")
        data, blob = self._read(num_json), self._read(num_blob)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"a message that is no JSON: {error}") from None
        if type(message) is not dict or type(message.get("do")) is not str:
            raise BadMessage("a message that says nothing")
        self.border.apply(message.get("changes", []), blob)
        return message, blob

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self.wait()
            try:
                piece = self.sock.recv(min(size - len(data), 1 << 20))
            except TimeoutError:
                continue
            except OSError:
                piece = b""
            if not piece:
                raise EOFError("the other side is gone")
            data += piece
        return bytes(data)


def _exception_named(name: Any) -> type[Exception] | None:
    """An exception class that is loaded here already; nothing is imported for a name from outside."""
    module, _, kind = str(name).rpartition(".")
    if module == "builtins":
        found = getattr(builtins, kind, None)
    elif module.startswith("minivllm."):
        found = vars(sys.modules.get(module, builtins)).get(kind)
    else:
        return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
