"""Sizes whose product or sum does not fit 64 bits, threads with a small stack, and chains too long to recurse over."""

import ctypes
import itertools
import sys

import numpy as np
import pytest
from op_oracle import ELEMENTWISE, OPS, OTHERS, REDUCTIONS, accepted, operand_dtypes
from test_processes import run

import hyalite as hl

HUGE = 2**62
ERRORS = (ValueError, MemoryError, IndexError, TypeError, NotImplementedError)
EMPTY = [(0, HUGE, HUGE), (HUGE, 0, HUGE), (HUGE, HUGE, 0), (0, HUGE), (HUGE, 0)]


def outcome(f):
    """Tensors whose sizes agree with their shapes, or one of our errors; a crash ends the run."""
    try:
        result = f()
    except ERRORS as e:
        assert str(e)
        return None
    for t in result if isinstance(result, (tuple, list)) else (result,):
        n = 1
        for s in t.shape:
            n = n * s
        assert t.numel() == n < 2**63 if hasattr(t, "numel") else t.size == n
    return result


def test_c7_empty_tensors_beside_huge_axes():
    """Zeros of (0, 2**62, 2**62) are fine, and so is all that is done to them."""
    for shape in EMPTY:
        x = hl.zeros(shape, dtype=hl.float32)
        assert x.shape == shape
        views = [
            x[::-1], x[..., ::-1], x[..., None], x[None], x[:, 1:], x[..., :: sys.maxsize], x[..., 2**61 :],
            hl.permute_dims(x, tuple(range(len(shape)))[::-1]), hl.broadcast_to(x, (1, *shape)),
            hl.expand_dims(x, axis=0), hl.real(x), hl.zeros(shape, dtype=hl.complex64).imag, x.detach(),
        ]  # fmt: skip
        for v in views:
            assert 0 in v.shape
            assert (v + v).shape == v.shape and (v + 1).shape == v.shape and hl.astype(v, hl.int8).shape == v.shape
            assert hl.contiguous(v).shape == v.shape and repr(v)
            v += 1
            outcome(lambda v=v: hl.reshape(v, (-1,)))
            outcome(lambda v=v: hl.reshape(v, (0,)))
            for axis in range(v.ndim):
                outcome(lambda v=v, axis=axis: hl.concat([v, v, v], axis=axis))
                outcome(lambda v=v, axis=axis: hl.take(v, hl.asarray([0], dtype=hl.int64), axis=axis))
        w = hl.zeros(shape, dtype=hl.float32).requires_grad_()
        (w * w).sum().backward()
        assert w.grad.shape == shape


@pytest.mark.parametrize("shape", EMPTY)
def test_c7_every_op_on_empty_tensors_beside_huge_axes(shape):
    for op in ELEMENTWISE:
        for name in accepted(op)[:1] + accepted(op)[-1:]:
            x = [hl.zeros(shape, dtype=getattr(hl, d)) for d in operand_dtypes(op, name)]
            outcome(lambda op=op, x=x: getattr(hl, op)(*x))
    for op in REDUCTIONS:
        for name in accepted(op)[:1] + accepted(op)[-1:]:
            x = hl.zeros(shape, dtype=getattr(hl, name))
            for axis in [None, *range(len(shape)), (0, 1)]:
                outcome(lambda op=op, x=x, axis=axis: getattr(hl, op)(x, axis=axis))
    total = hl.sum(hl.zeros(shape))
    assert total.shape == () and total.item() == 0
    for op in ("softmax", "log_softmax"):
        for axis in range(len(shape)):
            outcome(lambda op=op, axis=axis: getattr(hl, op)(hl.zeros(shape), axis=axis))


def test_c7_results_too_large_are_refused():
    """Views of one byte under huge shapes: what would need the memory says so, whatever the sizes multiply to."""
    b = hl.broadcast_to(hl.asarray([1], dtype=hl.int8), (HUGE,))
    with pytest.raises(ValueError, match=r"concat\(\): the sizes along axis 0 add up to more than 2\^63 - 1"):
        hl.concat([b] * 4)
    with pytest.raises(ValueError, match=r"add up to more"):
        hl.concat([b, b])
    calls = [
        lambda: b + b, lambda: b + 1, lambda: hl.contiguous(b), lambda: hl.concat([b, b[:5]]), lambda: b[:, None] * b,
        lambda: hl.astype(b, hl.float64), lambda: b.copy(),
        lambda: hl.take(b[None], hl.zeros((3,), dtype=hl.int64), axis=0), lambda: hl.stack([b, b]),
        lambda: hl.broadcast_to(b, (HUGE, HUGE)), lambda: hl.broadcast_to(hl.asarray(1.0), (HUGE,)),
        lambda: hl.zeros((HUGE, 4)), lambda: hl.empty((HUGE,)), lambda: hl.full((2**32, 2**32), 1),
        lambda: hl.eye(2**32),
        lambda: hl.ones((2**61, 8), dtype=hl.int8), lambda: hl.arange(2**62), lambda: hl.linspace(0, 1, 2**62),
        lambda: hl.take(b, hl.broadcast_to(hl.asarray([0]), (HUGE,))), lambda: hl.where(b == 1, b, b),
        lambda: hl.reshape(b, (2**31, 2**31)).T.copy(), lambda: hl.broadcast_to(b, (2, HUGE)).copy(),
    ]  # fmt: skip
    for i, call in enumerate(calls):
        with pytest.raises((ValueError, MemoryError)):
            call()
            pytest.fail(f"call {i} did not raise")


def test_c7_matmul_with_huge_sides():
    assert (hl.zeros((0, HUGE)) @ hl.zeros((HUGE, 0))).shape == (0, 0)
    assert (hl.zeros((0, 5, HUGE)) @ hl.zeros((HUGE, 0))).shape == (0, 5, 0)
    for a, b in itertools.product([(HUGE, 0), (3, HUGE, 0)], [(0, HUGE), (0, 4)]):
        outcome(lambda a=a, b=b: hl.zeros(a) @ hl.zeros(b))
    with pytest.raises(ValueError, match="more bytes than 64 bits"):
        hl.zeros((HUGE, 0)) @ hl.zeros((0, HUGE))


def test_c7_steps_beyond_everything():
    """A step from the only element of an axis is never taken."""
    x = hl.asarray(np.arange(12.0).reshape(3, 4))
    for step in (sys.maxsize, -sys.maxsize, -sys.maxsize - 1, 2**62):
        for key in ((slice(None, None, step),), (slice(None), slice(None, None, step))):
            want = np.arange(12.0).reshape(3, 4)[key]
            got = x[key]
            assert got.tolist() == want.tolist() and (got * 2).tolist() == (want * 2).tolist()
            assert got.T.tolist() == want.T.tolist() and got[..., ::step].tolist() == want[..., ::step].tolist()
            assert hl.sum(got, axis=0).tolist() == want.sum(axis=0).tolist()
    z = hl.asarray(np.arange(12.0) + 1j)
    assert z[:: sys.maxsize].real.tolist() == [0.0] and z[:: sys.maxsize].imag.tolist() == [1.0]


KEPT = []  # a structure lives as long as the process: a tensor asks it for its deleter, whenever that is


class Capsule:
    """A producer whose capsule says whatever the test wants."""

    def __init__(self, shape, strides=None, bits=32):
        from test_interop import Managed

        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
        self.data = ctypes.create_string_buffer(64)
        self.managed = Managed()
        KEPT.append(self)
        t = self.managed.tensor
        t.data, t.device_type, t.ndim = ctypes.addressof(self.data), 1, len(shape)
        t.code, t.bits, t.lanes = 2, bits, 1
        t.shape = self.shape
        if strides is not None:
            t.strides = self.strides

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


@pytest.mark.parametrize("shape", [*EMPTY, (0, HUGE, 2, HUGE, 3), (1, 0, 2**63 - 1)])
@pytest.mark.parametrize("strides", [None, 2**62, -(2**63)])
def test_c7_dlpack_shapes(shape, strides):
    x = hl.from_dlpack(Capsule(shape, None if strides is None else [strides] * len(shape)))
    assert x.shape == shape and (x + 1).shape == shape


def test_c7_dlpack_shapes_with_elements():
    for shape, strides in [((HUGE, 4), None), ((2**61,), None), ((2, 2), (2**62, 1)), ((2, 2), (-(2**63), 1))]:
        with pytest.raises((ValueError, BufferError)) as e:
            hl.from_dlpack(Capsule(shape, strides))
        assert "64 bits" in str(e.value)
    one = hl.from_dlpack(Capsule((1, 1), (2**62, -(2**63))))
    assert (one * 2).shape == (1, 1)


@pytest.mark.filterwarnings("ignore:nanobind")
def test_c7_types_that_nobody_makes():
    """Each type that an object of the package has can be called, or says that it cannot; no object is half made."""
    x = hl.ones((2,)).requires_grad_()
    y = x * x
    handle = y.register_hook(lambda g: None)
    objects = [hl.add, x, y.grad_fn, handle, hl.float32, hl.ones((2,)).numpy().base]
    for kind in {type(o) for o in objects if o is not None}:
        for make in (kind, lambda kind=kind: kind.__new__(kind), lambda kind=kind: object.__new__(kind)):
            try:
                repr(make())
            except (TypeError, AttributeError) as e:  # of an object without its fields
                assert str(e)


# ---- small stacks -----------------------------------------------------------------------------------------------


def test_c7_every_op_on_a_thread_with_a_small_stack():
    """128 KiB is what musl gives a thread."""
    run(
        f"""
import sys
sys.path.insert(0, {str(__file__).rsplit("/", 1)[0]!r})
import threading
import numpy as np
import hyalite as hl
from op_oracle import ELEMENTWISE, OTHERS, REDUCTIONS, accepted, calls, moderate
big = np.random.default_rng(1).normal(size=(300, 700)).astype(np.float32)
def layouts(a):
    yield hl.asarray(a)
    yield hl.asarray(np.ascontiguousarray(a.T)).T
    yield hl.asarray(np.repeat(a, 2, axis=1))[:, ::2]
    yield hl.asarray(a)[::-1, ::-1]
def body():
    try:
        for op in ELEMENTWISE:
            arity = hl._C._op_facts(op)["arity"]
            for name in accepted(op):
                a = hl.astype(hl.asarray(np.abs(big)), getattr(hl, name) if name != "bool" else hl.bool)
                first = a != 0 if hl._C._op_facts(op)["condition"] else a
                other = a.T.copy().T
                getattr(hl, op)(*[first, other, a[:, ::-1]][:arity])
                if arity == 2:
                    getattr(hl, op)(a.T, 1)
        for op in REDUCTIONS + OTHERS:
            for name in accepted(op):
                for shapes, call, _ in calls(op):
                    rng = np.random.default_rng(0)
                    call(*[hl.asarray(moderate(name, int(np.prod(s)), rng).reshape(s)) for s in shapes])
        for a in layouts(big):
            hl.sum(a), hl.sum(a, axis=0), hl.max(a, axis=1), hl.mean(a), hl.take(a, hl.asarray([2, 1]), axis=1)
            hl.where(a > 0, a, 1.0), hl.argmax(a, axis=0), a @ a.T, repr(a), a.numpy(), a.tolist()
            w = hl.asarray(a.numpy()).requires_grad_()
            (hl.exp(w.T) * w.T).sum().backward()
            a += 1
            a *= a[::-1]
    except BaseException as e:
        print(repr(e)); raise
    print("done")
threading.stack_size(128 * 1024)
t = threading.Thread(target=body)
t.start()
t.join()
""",
        timeout=250,
    ) == ["done"]


def test_c7_a_long_chain_of_gradients():
    run(
        """
import hyalite as hl
chain = hl.ones((1,))
for _ in range(300_000):
    t = hl.ones((1,)).requires_grad_()
    t.grad = chain
    chain = t
del t
del chain
"""
    )


def test_sizes_loop_over_every_op():
    assert sorted(ELEMENTWISE + REDUCTIONS + OTHERS) == sorted(OPS)
