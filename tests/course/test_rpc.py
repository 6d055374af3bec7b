"""What crosses between a marker and a part: values as they are, objects by name, and nothing else."""

import json
import socket
import threading

import pytest
import torch

from minivllm.course import NotImplementedYet
from minivllm.course.grade.rpc import HEADER, Endpoint
from minivllm.course.grade.tensors import BadMessage
from minivllm.course.grade.values import ROOT, Remote
from minivllm.kv.blocks import OutOfBlocks
from minivllm.request import Status


@pytest.fixture
def connect():
    """connect(part) → the part as a marker sees it. The other side runs in a thread."""
    ends = []

    def connected(part):
        ours, theirs = socket.socketpair()
        other = Endpoint(theirs, careful=False)
        other.border.keep(ROOT, part)
        threading.Thread(target=other.serve_for_ever, args=({},), daemon=True).start()
        ends.append(ours)
        return Remote(Endpoint(ours, careful=True), ROOT, "part", True)

    yield connected
    for end in ends:
        end.close()


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2**70, -0.5, float("inf"), "text ✓", (1, (2,)), [1, [2]], {"a": 1, 2: [3]}, {1, 2}]
    + [range(3), torch.bfloat16, Status.SWAPPED],
    ids=repr,
)
def test_plain_values_come_back_as_they_went(connect, value):
    back = connect(lambda x: x)(value)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_tensor_arrives_with_its_dtype_shape_values_and_strides(connect, dtype):
    tensor = (torch.arange(24).reshape(2, 3, 4) % 2).to(dtype)[:, 1:].transpose(0, 2)
    seen = {}
    back = connect(lambda x: seen.update(stride=x.stride()) or x.clone())(tensor)
    assert torch.equal(back, tensor) and back.dtype == dtype
    assert seen["stride"] == tensor.stride()


def test_empty_and_expanded_tensors_cross(connect):
    part = connect(lambda x: x.clone())
    assert part(torch.empty(0, 3)).shape == (0, 3)
    assert torch.equal(part(torch.ones(1, 3).expand(5, 3)), torch.ones(5, 3))


def test_what_the_part_writes_into_its_arguments_is_seen_here(connect):
    def part(tensor, numbers):
        tensor.numpy()[0] = 7
        numbers.append(4)

    tensor, numbers = torch.zeros(2), [1]
    connect(part)(tensor, numbers)
    assert tensor.tolist() == [7, 0] and numbers == [1, 4]


def test_what_is_written_here_later_is_seen_by_a_part_that_kept_it(connect):
    kept = []
    part = connect(lambda *args: kept.append(args) if args else [kept[0][0].tolist(), kept[0][1]])
    tensor, numbers = torch.zeros(2), [1]
    part(tensor, numbers)
    tensor.fill_(5)
    numbers.append(2)
    assert part() == [[5.0, 5.0], [1, 2]]


def test_a_list_that_was_returned_is_the_parts_own(connect):
    class Pool:
        def __init__(self):
            self.blocks = [1, 2]

    pool = connect(Pool)()
    pool.blocks.append(3)
    assert pool.blocks == [1, 2, 3]


def test_the_same_object_is_the_same_object_there_and_back(connect):
    tensor = torch.zeros(1)
    assert connect(lambda a, b: a is b)(tensor, tensor) is True
    assert connect(lambda f, x: f(x))(lambda x: x is tensor, tensor) is True


def test_calls_go_to_and_fro(connect):
    part = connect(lambda f, n: n if n == 0 else f(n) + 1)

    def again(n):
        return part(again, n - 1)

    assert part(again, 5) == 5


@pytest.mark.parametrize("kind", [ValueError, KeyError, OutOfBlocks, NotImplementedYet])
def test_an_exception_crosses_by_its_type(connect, kind):
    def part():
        raise kind("why")

    with pytest.raises(kind, match="why"):
        connect(part)()


def test_an_exception_of_an_unknown_type_is_the_nearest_known_one(connect):
    class Own(IndexError):
        pass

    def part():
        raise Own("mine")

    with pytest.raises(IndexError, match="mine"):
        connect(part)()


def test_our_own_exception_comes_back_as_it_is_through_the_part(connect):
    error = OutOfBlocks("ours")

    def raises():
        raise error

    with pytest.raises(OutOfBlocks) as caught:
        connect(lambda f: f())(raises)
    assert caught.value is error


class Model:
    def __init__(self):
        self.calls, self._want, self.kind, self.module = [1], "expected", Model, json

    def method(self):
        return self._want


@pytest.mark.parametrize("name", ["_want", "__class__", "__dict__", "kind", "module", "method.__globals__"])
def test_a_part_reads_public_plain_attributes_and_no_more(connect, name):
    def part(model):
        value = model
        for piece in name.split("."):
            value = value._link.get(value._number, piece)

    with pytest.raises(AttributeError, match="is not for the part to read"):
        connect(part)(Model())


def test_what_a_part_does_to_an_attribute_it_read_stays_there(connect):
    model = Model()
    connect(lambda m: m.calls.clear())(model)
    assert model.calls == [1]


def test_a_part_cannot_set_an_attribute_here(connect):
    model = Model()
    with pytest.raises(AttributeError, match="cannot be set"):
        connect(lambda m: setattr(m, "calls", []))(model)


class Counter:
    parts_may_set = frozenset({"count", "status"})

    def __init__(self):
        self.count, self.status, self.limit, self._hidden = 0, Status.WAITING, 5, 1


def test_a_part_sets_the_attributes_that_the_objects_class_names(connect):
    def part(counter):
        counter.count += 3
        counter.status = Status.RUNNING
        return counter.count, counter.status is Status.RUNNING

    counter = Counter()
    assert connect(part)(counter) == (3, True)
    assert counter.count == 3 and counter.status is Status.RUNNING


@pytest.mark.parametrize("name", ["limit", "_hidden", "parts_may_set", "__class__", "new", "__dict__"])
def test_a_part_sets_no_other_attribute(connect, name):
    def part(counter):
        counter._link.set(counter._number, name, 7)

    counter = Counter()
    before = dict(vars(counter))
    with pytest.raises(AttributeError, match="cannot be set"):
        connect(part)(counter)
    assert vars(counter) == before and type(counter) is Counter
    assert Counter.parts_may_set == frozenset({"count", "status"})


@pytest.mark.parametrize("value", [[1], {"a": 1}, torch.zeros(1), len, (1,), Counter()], ids=repr)
def test_a_part_sets_an_attribute_to_nothing_but_a_plain_value(connect, value):
    counter = Counter()
    with pytest.raises(AttributeError, match="cannot be set"):
        connect(lambda c: setattr(c, "count", value))(counter)
    assert counter.count == 0


def test_an_object_cannot_allow_more_than_its_class(connect):
    counter = Counter()
    counter.parts_may_set = frozenset({"limit"})
    with pytest.raises(AttributeError, match="cannot be set"):
        connect(lambda c: setattr(c, "limit", 9))(counter)
    assert counter.limit == 5


def test_a_marker_sets_nothing_in_a_part(connect):
    with pytest.raises(AttributeError, match="cannot be set"):
        connect(Counter)().count = 9


def hostile(*frames):
    """A marker's endpoint whose other side has sent these bytes."""
    ours, theirs = socket.socketpair()
    for frame in frames:
        theirs.sendall(frame)
    theirs.shutdown(socket.SHUT_WR)
    return Endpoint(ours, careful=True), theirs


def frame(message, blob=b""):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return HEADER.pack(len(data), len(blob)) + data + blob


def result(value, changes=()):
    return frame({"do": "result", "value": value, "changes": list(changes)})


TENSOR = {"kind": "tensor", "dtype": "float32", "size": [2], "stride": [1], "at": 0}


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 8,
        frame(b"[" * 100_000),
        frame(b"no json"),
        frame([]),
        frame({"do": 3}),
        frame({"do": "run", "name": "x"}),
        frame({"do": "call", "of": 99, "name": "__call__"}),
        frame({"do": "call", "of": [], "name": "__call__"}),
        frame({"do": "call", "of": 2, "name": "__reduce__"}),
        frame({"do": "set", "of": 99, "name": "count", "args": [1]}),
        frame({"do": "set", "of": 4, "name": "count", "args": [1]}),
        result({"kind": "pickle"}),
        result({"kind": "status", "name": "free"}),
        result({"kind": "status", "name": []}),
        result({"kind": "ref", "number": 100}),
        result({"kind": "list", "number": 2, "items": []}),
        result({"kind": "object", "number": None, "type": "x", "callable": True}),
        result(TENSOR),
        result({**TENSOR, "size": [-1]}),
        result({**TENSOR, "size": [1 << 40], "stride": [0]}),
        result({**TENSOR, "dtype": "object"}),
        result([1]),
        result(None, [{"number": 40, "kind": "list", "items": []}]),
        result(None, [{"number": 4, "kind": "tensor", "dtype": "x"}]),
    ],
)
def test_a_message_that_is_none_is_refused(sent):
    endpoint, other = hostile(sent)
    with pytest.raises(BadMessage):
        endpoint.call(ROOT, "__call__", (lambda: 1, [1]), {})
    other.close()


def test_a_side_that_is_gone_is_noticed():
    endpoint, other = hostile()
    with pytest.raises(EOFError):
        endpoint.call(ROOT, "__call__", (), {})
    other.close()
