"""Pickles and copies of tensors: bits, leaves, sharing, order in memory, subclasses, and pickles that lie."""

import copy
import gc
import io
import os
import pickle
import pickletools
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import hyalite as hl
from hyalite import _C, _pickle

DTYPES = [getattr(hl, row[0]) for row in _C._dtype_table()]
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def through_pickle(protocol):
    def there_and_back(x):
        return pickle.loads(pickle.dumps(x, protocol))

    there_and_back.__name__ = f"pickle{protocol}"
    return there_and_back


def out_of_band(x):
    """Protocol 5 with buffers of their own, which another process would receive as bytes."""
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytearray(b) for b in buffers])


class PythonPickler(pickle._Pickler):
    """pickle's own pickler in Python, which some programs use for its hooks."""


def through_python(x):
    file = io.BytesIO()
    PythonPickler(file, 4).dump(x)
    return pickle._loads(file.getvalue())


PICKLES = [*map(through_pickle, PROTOCOLS), out_of_band, through_python]
COPIES = [copy.copy, copy.deepcopy]
WAYS = PICKLES + COPIES
ways = pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
together = pytest.mark.parametrize("way", [*PICKLES, copy.deepcopy], ids=lambda f: f.__name__)


def bits(x):
    """The bytes of the elements in row-major order."""
    return np.ascontiguousarray(x.detach().numpy()).tobytes()


def every_pattern(dtype):
    """A tensor with odd bit patterns: all of them up to 16 bits, else many; NaNs of every payload among them."""
    width = dtype.itemsize
    if dtype is hl.bool:
        raw = np.array([0, 1, 1, 0, 1], np.uint8)
    elif width <= 2:
        raw = np.arange(256**width, dtype=f"u{width}")
    else:
        raw = np.frombuffer(np.random.default_rng(7).bytes(width * 500), np.uint32).copy()
        raw[:40] |= 0x7FF00000  # among them quiet and signaling NaNs of both signs
        raw[40:60] = 0xFF812345
    x = hl.asarray(np.zeros(raw.nbytes // width, np.uint8)).astype(dtype)
    memoryview(np.asarray(x.numpy()).view(np.uint8))[:] = raw.view(np.uint8)
    return x


@ways
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_w7_every_bit_survives(way, dtype):
    x = every_pattern(dtype)
    y = way(x)
    assert y.dtype is dtype and y.shape == x.shape and bits(y) == bits(x)
    assert y.data_ptr() != x.data_ptr()
    y[...] = True if dtype is hl.bool else 1
    assert y.tolist()[0] == 1


@ways
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3), (1,) * 64])
def test_w7_shapes_survive(way, shape):
    x = hl.full(shape, 2.5)
    y = way(x)
    assert y.shape == shape and y.tolist() == x.tolist() and y.strides == x.strides


LAYOUTS = {
    "row-major": (lambda x: x, True),
    "column-major": (lambda x: x.T, True),
    "reversed": (lambda x: x[::-1, ::-2], False),
    "steps": (lambda x: x[::2, 1:3], False),
    "broadcast": (lambda x: hl.broadcast_to(x[:1], (5, 4)), False),
    "inner": (lambda x: x[1:2, 1:2], False),
    "permuted": (lambda x: hl.permute_dims(hl.reshape(x, (3, 2, 2)), (2, 0, 1)), True),
}


@ways
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source_lives", [True, False])
def test_w7_layouts_survive(way, layout, source_lives):
    view, keeps_strides = LAYOUTS[layout]
    source = hl.reshape(hl.arange(12.0), (3, 4)) + 0
    x = view(source)
    want, strides = x.tolist(), x.strides
    if not source_lives:
        del source
    y = way(x)
    assert y.tolist() == want
    if keeps_strides:
        assert y.strides == strides


@ways
@pytest.mark.parametrize("requires_grad", [True, False])
def test_w7_a_leaf_stays_a_leaf(way, requires_grad):
    x = hl.tensor([1.0, 2.0], requires_grad=requires_grad)
    y = way(x)
    assert y.is_leaf and y.requires_grad is requires_grad and y.grad_fn is None
    if requires_grad:
        (y * y).sum().backward()
        assert y.grad.tolist() == [2.0, 4.0] and x.grad is None


@ways
def test_w7_a_copied_model_trains(way):
    model = {"w": hl.tensor([[1.0, 2.0]], requires_grad=True), "b": hl.tensor([0.5], requires_grad=True)}
    other = {k: copy.copy(v) for k, v in model.items()} if way is copy.copy else way(model)
    (other["w"] @ hl.asarray([1.0, 1.0]) + other["b"]).sum().backward()
    with hl.no_grad():
        for p in other.values():
            p -= 0.5 * p.grad
    assert other["w"].tolist() == [[0.5, 1.5]] and other["b"].tolist() == [0.0]
    assert model["w"].tolist() == [[1.0, 2.0]] and model["w"].grad is None


def test_w7_deepcopy_takes_the_gradient_along_and_the_others_do_not():
    x = hl.tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    for way in WAYS:
        y = way(x)
        if way is copy.deepcopy:
            assert y.grad.tolist() == [3.0, 3.0] and y.grad is not x.grad and y.grad.data_ptr() != x.grad.data_ptr()
        else:
            assert y.grad is None
    assert x.grad.tolist() == [3.0, 3.0]


def test_w7_a_tensor_with_history():
    w = hl.tensor([1.0, 2.0], requires_grad=True)
    y = w * 3
    with pytest.raises(hl.AutogradError, match=r"deepcopy\(\): the tensor was made by MultiplyBackward.*x\.detach\(\)"):
        copy.deepcopy(y)
    with pytest.raises(hl.AutogradError):
        copy.deepcopy([{"y": y}])
    z = copy.copy(y)  # a recorded copy: it stays in the graph
    assert not z.is_leaf and z.data_ptr() != y.data_ptr()
    z.sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]
    for way in PICKLES:  # the graph stays behind: what comes back is a leaf
        back = way(y)
        assert back.is_leaf and back.requires_grad and back.tolist() == [3.0, 6.0]
    assert copy.deepcopy(y.detach()).tolist() == [3.0, 6.0]


# ---- sharing --------------------------------------------------------------------------------------------------------


@together
def test_w7_views_of_one_storage_still_share(way):
    x = hl.reshape(hl.arange(12.0), (3, 4)) + 0
    first, second, flipped, alone = x[0], x[:, 1], x[::-1], hl.ones(2)
    first, [second, whole, flipped, again], alone = way((first, [second, x, flipped, first], alone))
    assert again is first
    whole += 100
    assert first.tolist() == [100.0, 101.0, 102.0, 103.0] and second.tolist() == [101.0, 105.0, 109.0]
    assert flipped.tolist()[2] == first.tolist()
    assert first.version == second.version == whole.version == 1 and alone.version == 0
    second[0] = -1
    assert first.tolist()[1] == whole[0, 1].item() == -1
    assert x[0, 1].item() == 1 and alone.tolist() == [1.0, 1.0]


@together
def test_w7_views_of_other_dtypes_still_share(way):
    z = hl.tensor([1 + 2j, 3 + 4j])
    z, real, imag = way((z, z.real, z.imag))
    real[0] = 10
    imag *= 2
    assert z.tolist() == [10 + 4j, 3 + 8j]


def test_w7_a_memo_of_the_callers_is_used():
    x = hl.arange(4.0)
    memo = {}
    a = copy.deepcopy(x[:2], memo)
    b = copy.deepcopy(x[1:], memo)
    a[1] = 9
    assert b.tolist() == [9.0, 2.0, 3.0] and x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert copy.deepcopy(x, {id(x): 7}) == 7
    loop = [x]
    loop.append(loop)
    copied = copy.deepcopy(loop)
    assert copied[1] is copied and copied[0].tolist() == x.tolist()


def test_w7_a_slice_that_nobody_shares_goes_alone():
    big = hl.zeros(1_000_000)
    part = big[1000:1010]
    assert len(pickle.dumps((big, part))) < 4_001_000
    del big
    assert len(pickle.dumps(part)) < 1000 and copy.deepcopy(part).storage_offset == 0
    assert len(pickle.dumps(hl.broadcast_to(hl.ones(1), (1000, 1000)))) < 1000
    assert len(pickle.dumps(hl.asarray(np.zeros(1000))[::100])) < 1000


# ---- speed ----------------------------------------------------------------------------------------------------------


def test_w7_no_lists_and_no_bytes_beyond_the_data():
    x = hl.ones(1_000_000)
    for protocol in range(2, 6):
        data = pickle.dumps(x, protocol)
        assert len(data) < 4_000_000 * (2.5 if protocol == 2 else 1) + 400
        names = [op.name for op, _, _ in pickletools.genops(data)]
        assert len(names) < 80 and "BINFLOAT" not in names
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(data) < 400 and [b.raw().nbytes for b in buffers] == [4_000_000]


def test_w7_buffers_out_of_band_are_shared_as_they_are():
    x = hl.arange(4.0)
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    y = pickle.loads(data, buffers=buffers)
    assert y.data_ptr() == x.data_ptr()
    y += 1
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0] and x.version == y.version == 1
    mine = memoryview(bytearray(buffers[0]))
    z = pickle.loads(data, buffers=[mine])
    mine.cast("f")[0] = 50.0
    assert z.tolist() == [50.0, 2.0, 3.0, 4.0]
    # What was writable does not come back read-only, and what lies askew is moved.
    for given in (
        bytes(buffers[0]),
        memoryview(bytes(buffers[0])),
        memoryview(bytearray(b"x" + bytes(buffers[0])))[1:],
    ):
        w = pickle.loads(data, buffers=[given])
        w += 1
        assert w.tolist() == [2.0, 3.0, 4.0, 5.0]
    locked = np.arange(3.0)
    locked.flags.writeable = False
    buffers.clear()
    data = pickle.dumps(hl.asarray(locked), 5, buffer_callback=buffers.append)
    same = pickle.loads(data, buffers=buffers)
    with pytest.raises(ValueError, match="read-only"):
        same += 1
    free = through_pickle(5)(hl.asarray(locked))
    free += 1
    assert free.tolist() == [1.0, 2.0, 3.0]


def test_w7_memory_goes_when_the_last_user_goes():
    class Watched(bytearray):
        pass

    x = hl.arange(4.0)
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    owner = Watched(buffers[0])
    watch = weakref.ref(owner)
    y = pickle.loads(data, buffers=[owner])
    view = y[1:]
    del y, owner
    gc.collect()
    assert watch() is not None and view.tolist() == [1.0, 2.0, 3.0]
    del view
    gc.collect()
    assert watch() is None
    before = hl.memory_stats()["allocated_bytes"]
    for way in WAYS:
        way(hl.ones(100_000))
    gc.collect()
    assert hl.memory_stats()["allocated_bytes"] - before < 100_000


def test_w7_pickling_in_many_threads():
    x = hl.arange(1000.0)
    failed = []

    def work():
        for _ in range(50):
            a, b = pickle.loads(pickle.dumps((x[:500], x[250:]), 5))
            a += 1
            if b[0].item() != 251 or copy.deepcopy(x)[7].item() != 7:
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed and x.tolist() == list(range(1000))


def test_w7_another_process_reads_it():
    data = pickle.dumps({"w": hl.tensor([1.5, 2.5], requires_grad=True), "h": hl.zeros(2, dtype=hl.bfloat16)})
    program = (
        "import pickle, sys\nd = pickle.loads(sys.stdin.buffer.read())\n"
        "print(d['w'].requires_grad, d['w'].tolist(), d['h'].dtype)"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.stdout.split() == b"True [1.5, 2.5] bfloat16".split(), done.stderr


# ---- subclasses -----------------------------------------------------------------------------------------------------


class Plain(hl.Tensor):
    pass


class Named(hl.Tensor):
    """A subclass with a constructor that wants more than a pickle has."""

    def __new__(cls, obj, name):
        return super().__new__(cls, obj)

    def __init__(self, obj, name):
        self.name = name
        self.made = True


class Slotted(hl.Tensor):
    __slots__ = ("tag", "unset")


class Own(hl.Tensor):
    """A subclass that says itself what it keeps."""

    def __getstate__(self):
        return {"kept": self.kept}

    def __setstate__(self, state):
        self.kept = state["kept"] + ["set"]


def plain():
    x = Plain([1.0, 2.0])
    x.attribute = {"deep": [1]}
    return x


def slotted():
    x = Slotted([1.0])
    x.tag = "t"
    return x


def own():
    x = Own([1.0])
    x.kept, x.lost = ["k"], 1
    return x


@ways
def test_w28_a_subclass_keeps_its_class_and_attributes(way):
    x = plain()
    x.requires_grad_()
    y = way(x)
    assert type(y) is Plain and y.tolist() == [1.0, 2.0] and y.requires_grad and y.is_leaf
    assert y.attribute == {"deep": [1]} and (y.attribute is x.attribute) == (way is copy.copy)
    y.attribute["more"] = 1
    y.other = 2
    assert not hasattr(x, "other")
    y = way(Named([3.0], "n"))
    assert type(y) is Named and y.name == "n" and y.made and y.tolist() == [3.0]
    y = way(Plain([1.0]))
    assert type(y) is Plain and y.__dict__ == {}
    if way.__name__ not in ("pickle0", "pickle1"):
        y = way(slotted())
        assert type(y) is Slotted and y.tag == "t" and not hasattr(y, "unset")
    y = way(own())
    assert type(y) is Own and y.kept == ["k", "set"] and not hasattr(y, "lost")


def test_w28_results_of_operators_are_plain_tensors():
    x = plain()
    for y in (x + 1, x[0], x.detach(), x.copy(), hl.exp(x), x.astype(hl.float64)):
        assert type(y) is hl.Tensor
    z = x
    z += 1
    assert z is x and type(z) is Plain and z.tolist() == [2.0, 3.0]


def test_w28_a_subclass_with_history_is_copied_within_the_graph():
    x = plain().requires_grad_()
    base = hl.zeros(2)
    y = Plain(base)
    y.attribute = 1
    y += x
    z = copy.copy(y)
    assert type(z) is Plain and z.attribute == 1 and not z.is_leaf
    z.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_w28_cycles_through_attributes():
    x = plain()
    x.me = x
    x.friend = y = plain()
    y.friend = x
    for way in (copy.deepcopy, through_pickle(2), through_pickle(5)):
        z = way(x)
        assert z.me is z and z.friend.friend is z and type(z.friend) is Plain and z is not x
    z = copy.copy(x)
    assert z.me is x and z is not x
    watch = weakref.ref(x)
    del x, y, z
    gc.collect()
    assert watch() is None


@ways
def test_w7_dtypes_survive(way):
    for dtype in DTYPES:
        assert way(dtype) is dtype and way([dtype])[0] is dtype


# ---- pickles that lie -----------------------------------------------------------------------------------------------


def storage(nbytes=16):
    return _pickle._storage(bytearray(nbytes), True)


def lies():
    """Arguments of the function that pickles name, of which no tensor can be made."""
    good = dict(cls=hl.Tensor, storage=storage(), dtype=hl.float32, shape=(4,), strides=(1,), offset=0, grad=False)
    huge = 2**63 - 1
    bad = {
        "cls": [int, object, type, None, hl.Tensor([1.0]), 3],
        "storage": [None, b"1234567890123456", bytearray(16), hl.zeros(4), 7],
        "dtype": ["float32", None, np.float32, 0],
        "shape": [
            (5,), (2**62,), (huge,), (-1,), (-huge - 1,), (2**64,), (4.0,), ("4",), (None,), [4], 4, None, (4, 1),
            (), (1,) * 65, (2**32, 2**32),
        ],
        "strides": [(2,), (-1,), (huge,), (-huge - 1,), (2**62,), (2**64,), (1.5,), (None,), [1], None, (1, 1), ()],
        "offset": [1, -1, huge, -huge - 1, 2**64, 1.5, None, "0"],
    }  # fmt: skip
    for name, values in bad.items():
        for value in values:
            yield pytest.param(tuple((good | {name: value}).values()), id=f"{name} {str(value)[:30]}")
    for shape, strides, offset in [
        ((2, 2), (3, 1), 0), ((2, 2), (-2, 1), 1), ((2,), (-1,), 0), ((2**31, 2**31, 4), (0, 0, 1), 1),
        ((0,), (1,), 5), ((0,), (1,), -1), ((2,), (huge,), 0), ((3,), (2**62,), 0), ((2, 2), (huge, huge), 0),
    ]:  # fmt: skip
        args = tuple((good | {"shape": shape, "strides": strides, "offset": offset}).values())
        yield pytest.param(args, id=f"{shape} {strides} {offset}"[:60])
    yield pytest.param((*tuple(good.values())[:2], hl.int32, (4,), (1,), 0, True), id="a gradient of ints")
    yield pytest.param(tuple(good.values())[:6], id="too few")
    yield pytest.param((), id="nothing")
    yield pytest.param((*good.values(), 1), id="too many")


class Lie:
    def __init__(self, function, args, state=None):
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("args", list(lies()))
def test_w7_a_pickle_that_lies_raises(args):
    with pytest.raises((TypeError, ValueError, OverflowError, hl.HyaliteError)):
        _pickle._tensor(*args)
    with pytest.raises((TypeError, ValueError, OverflowError, hl.HyaliteError, pickle.PicklingError)):
        pickle.loads(pickle.dumps(Lie(_pickle._tensor, args)))


def test_w7_the_message_says_what_reaches_outside():
    with pytest.raises(
        ValueError, match=r"shape \(5,\) with strides \(1,\) at offset 0 reaches outside its storage of 4"
    ):
        _pickle._tensor(hl.Tensor, storage(), hl.float32, (5,), (1,), 0, False)
    with pytest.raises(TypeError, match="no hl.Tensor"):
        _pickle._tensor(int, storage(), hl.float32, (4,), (1,), 0, False)
    with pytest.raises(TypeError, match="made of a storage and a dtype"):
        _pickle._tensor(hl.Tensor, b"", hl.float32, (4,), (1,), 0, False)
    with pytest.raises(ValueError, match="a stride is needed for each axis"):
        _pickle._tensor(hl.Tensor, storage(), hl.float32, (4,), (), 0, False)
    with pytest.raises(TypeError, match="the shape must be a tuple of at most 64 ints"):
        _pickle._tensor(hl.Tensor, storage(), hl.float32, [4], (1,), 0, False)


def test_w7_the_extremes_of_a_storage_are_reached():
    s = storage()
    make = _pickle._tensor
    assert make(hl.Tensor, s, hl.float32, (4,), (-1,), 3, False).tolist() == [0.0] * 4
    assert make(hl.Tensor, s, hl.complex128, (1,), (7,), 0, False).shape == (1,)
    assert make(hl.Tensor, s, hl.float32, (0, 2**62), (2**62, 1), 4, False).shape == (0, 2**62)
    assert make(hl.Tensor, s, hl.int8, (2**40, 16), (0, 1), 0, False).shape == (2**40, 16)


@pytest.mark.parametrize(
    "args", [(), (None, True), (3, True), ("text", True), ([1], False), (np.zeros((2, 2))[:, 0], True)]
)
def test_w7_a_storage_of_nothing_raises(args):
    with pytest.raises((TypeError, ValueError, BufferError)):
        _pickle._storage(*args)


def test_w7_states_that_lie_raise():
    t = (hl.Tensor, storage(), hl.float32, (4,), (1,), 0, False)
    for state in ({"x": 1}, (None, {"grad": 3}), (None, {"shape": (1,)}), 5):
        with pytest.raises((TypeError, AttributeError, ValueError, pickle.UnpicklingError)):
            pickle.loads(pickle.dumps(Lie(_pickle._tensor, t, state)))
    plain = pickle.loads(pickle.dumps(Lie(_pickle._tensor, (Plain, *t[1:]), (None, {"impl": 1}))))
    assert plain.impl == 1 and plain.tolist() == [0.0] * 4


def test_w7_objects_without_a_tensor_are_not_made():
    for make in (object.__new__, lambda cls: cls.__new__(cls), lambda cls: cls.__reduce_ex__(cls, 4)):
        with pytest.raises(TypeError):
            make(hl.Tensor)
    storage_class = type(storage())
    with pytest.raises(TypeError):
        storage_class()
    for make in (object.__new__, lambda cls: cls.__new__(cls)):
        with pytest.raises(TypeError):
            make(storage_class)


def test_w7_damaged_pickles_raise_or_give_a_tensor():
    """Bytes changed at random never crash, whatever they say."""
    rng = np.random.default_rng(3)
    for protocol in PROTOCOLS:
        whole = pickle.dumps((hl.arange(6.0)[::2], hl.tensor([1.0], requires_grad=True)), protocol)
        for _ in range(300):
            data = bytearray(whole)
            for at in rng.integers(0, len(data), 1 + rng.integers(3)):
                data[at] = rng.integers(256)
            try:
                found = pickle.loads(data[: rng.integers(1, len(data) + 1)] if rng.random() < 0.3 else data)
            except Exception:  # noqa: S112 - any is fine, but for a crash
                continue
            for x in found if isinstance(found, tuple) else (found,):
                if isinstance(x, hl.Tensor) and x.size < 1000:
                    x.tolist()
