"""Python's numbers in every place of every op: no crash, the exact value or our error, ints of any size."""

import itertools
import math
import operator
from fractions import Fraction

import numpy as np
import pytest

import hyalite as hl
from hyalite import _C

REAL = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64",
]  # fmt: skip
FLOATS = ["float16", "bfloat16", "float32", "float64"]
HUGE = [2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, 2**70 + 1, 2**127, 2**128, 10**400]
HUGE += [-v for v in HUGE] + [-(2**63) - 1]
RELATIONS = {
    "less": operator.lt, "less_equal": operator.le, "equal": operator.eq, "not_equal": operator.ne,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
OPS = [name for name in _C._op_names()]


def ends(name):
    """Values at the ends of a dtype's range, and beside 0 and 2^53, as a tensor."""
    d = getattr(hl, name)
    if name == "bool":
        return hl.asarray([False, True])
    if hl.isdtype(d, "integral"):
        info = hl.iinfo(d)
        return hl.asarray([info.min, 0, 1, info.max], dtype=d)
    info = hl.finfo(d)
    values = [info.min, -1.5, -0.0, 0.0, 1.0, info.max, math.inf, -math.inf, math.nan, 2.0**15]
    return hl.asarray(values + ([2.0**53, 2.0**63, 2.0**64, 2.0**70] if info.bits > 16 else []), dtype=d)


# ---- W21: comparisons -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("relation", RELATIONS)
def test_w21_comparisons_with_ints_of_any_size_are_exact(name, relation):
    x, function = ends(name), RELATIONS[relation]
    values = x.tolist()
    near = {int(v) + d for v in values if math.isfinite(v) for d in (-1, 0, 1)}
    for i in sorted(near | set(HUGE)):
        want = [function(v, i) for v in values]
        assert function(x, i).tolist() == want, (values, i)
        assert getattr(hl, relation)(x, i).tolist() == want, i
        mirrored = [function(i, v) for v in values]
        assert function(i, x).tolist() == mirrored and getattr(hl, relation)(i, x).tolist() == mirrored, i


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_w21_equality_of_complex_with_ints_is_exact(name):
    x = hl.asarray([0, 2.0**24, 2.0**53, 2.0**63, 2.0**64, 2.0**70, 1 + 1j, math.nan], dtype=getattr(hl, name))
    values = x.tolist()
    for i in [0, 2**24, 2**24 + 1, 2**53 + 1, *HUGE]:
        assert (x == i).tolist() == [v == i for v in values], i
        assert (i != x).tolist() == [v != i for v in values], i


NUMBERS = [False, True, 0, -1, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400, 0.1, 1e300, math.inf, math.nan]


@pytest.mark.parametrize("relation", RELATIONS)
def test_w22_comparisons_of_numbers_alone_are_pythons(relation):
    for a, b in itertools.product(NUMBERS, repeat=2):
        got = getattr(hl, relation)(a, b)
        assert got.dtype is hl.bool and got.shape == () and got.item() is RELATIONS[relation](a, b), (a, b)


# ---- W22: functions of numbers alone ----------------------------------------------------------------------------

INTS = [0, 1, -1, 2, -3, 7, 64, 63, -(2**31), 2**31, 2**32 + 1, 2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63), 2**63]
INTS += [2**64 - 1, 2**64, -(2**63) - 1, 2**70, -(2**70), 10**400]
EXACT = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "negative": operator.neg,
    "positive": operator.pos, "abs": abs, "square": lambda a: a * a, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "bitwise_invert": operator.invert, "maximum": max,
    "minimum": min, "sum": lambda a: a, "prod": lambda a: a, "max": lambda a: a, "min": lambda a: a,
    "sign": lambda a: (a > 0) - (a < 0), "relu": lambda a: max(a, 0), "floor": lambda a: a, "ceil": lambda a: a,
    "trunc": lambda a: a, "round": lambda a: a, "real": lambda a: a, "conj": lambda a: a,
    "floor_divide": lambda a, b: a // b if b else 0, "remainder": lambda a, b: a % b if b else 0,
    "divmod": lambda a, b: divmod(a, b) if b else (0, 0),
    "bitwise_left_shift": lambda a, b: (a << b if b < 200 or not a else None) if b >= 0 else 0,
    "bitwise_right_shift": lambda a, b: (a >> min(b, 200)) if b >= 0 else (-1 if a < 0 else 0),
    "pow": lambda a, b: None if b < 0 or (b > 200 and abs(a) > 1) else a ** (b if abs(a) > 1 else b % 2 + 2 * (b > 0)),
    "any": bool, "all": bool, "logical_not": operator.not_, "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b), "logical_xor": lambda a, b: bool(a) != bool(b),
    "isnan": lambda a: False, "isinf": lambda a: False, "isfinite": lambda a: True, "argmax": lambda a: 0,
    "argmin": lambda a: 0,
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_w22_ints_alone_give_the_exact_value_or_overflow(name):
    arity = _C._op_facts(name)["arity"]
    seen = 0
    for args in itertools.product(INTS, repeat=arity):
        try:
            got = getattr(hl, name)(*args)
        except (OverflowError, ValueError) as error:
            raised = isinstance(error, OverflowError) or name == "pow"
            assert raised and f"{name}(): " in str(error), (args, error)
            # What 64 bits hold, from operands that they hold, is computed.
            want = EXACT[name](*args)
            parts = want if isinstance(want, tuple) else (want,)
            fits = want is not None and all(-(2**63) <= v < 2**63 for v in (*args, *parts))
            assert not fits, (args, error)
            continue
        got = tuple(t.item() for t in got) if isinstance(got, tuple) else got.item()
        assert got == EXACT[name](*args), (args, got)
        seen += 1
    assert seen >= 10


def rounded(value, name):
    """A rational number in a float dtype, ties to even."""
    if not value:
        return 0.0
    info, digits = hl.finfo(getattr(hl, name)), {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[name]
    exponent = 0
    size = abs(value)
    while size >= 2**digits:
        size, exponent = size / 2, exponent + 1
    while size < 2 ** (digits - 1):
        size, exponent = size * 2, exponent - 1
    scaled = round(size) * Fraction(2) ** exponent
    return (float(scaled) if scaled <= Fraction(info.max) else math.inf) * (1 if value > 0 else -1)


@pytest.mark.parametrize("name", FLOATS)
def test_w22_ints_beside_floats_are_rounded_once(name):
    d = getattr(hl, name)
    zero, one = hl.zeros((1,), dtype=d), hl.ones((1,), dtype=d)
    odd = [2**24 + 1, 2**25 + 2**24 + 3, (2**53 + 1) << 40, 2**128 - 2**103, 2**128 - 2**103 - 1, 65519, 65520, 65535]
    for i in [*HUGE, *odd, *(-v for v in odd), *(2**k + 1 for k in range(0, 200, 7))]:
        want = rounded(Fraction(i), name)
        assert (zero + i).item() == (i * one).item() == hl.maximum(i, -hl.inf * one).item() == want, i
        assert hl.where(one != 0, i, zero).item() == hl.where(hl.asarray([True]), zero + i, 0).item() == want, i
        target = hl.zeros(3, dtype=d)
        target[1], target[2:] = i, i
        assert target.tolist() == [0.0, want, want], i
        target[[0]] = i
        assert target.tolist() == [want] * 3
        both = hl.asarray([-hl.inf, hl.inf], dtype=d)
        clipped = hl.clip(both, None, i).tolist() if i > 0 else hl.clip(both, i, None).tolist()
        assert clipped == ([-hl.inf, want] if i > 0 else [want, hl.inf]), i
        assert hl.clip(both, min(i, 0), max(i, 0)).tolist() == ([0.0, want] if i > 0 else [want, 0.0]), i


def test_w22_functions_that_make_floats_of_ints_take_any_size():
    assert hl.sqrt(2**70).item() == 2.0**35 and hl.sqrt(2**70).dtype is hl.float32
    assert hl.divide(2**70, 2**69).item() == 2.0 and hl.divide(1, 2**64).item() == 2.0**-64
    assert hl.log(10**400).item() == math.inf and hl.reciprocal(10**400).item() == 0.0
    assert hl.mean(2**70).item() == 2.0**70
    assert hl.add(2**70, 0.5).item() == 2.0**70 and hl.multiply(2**70, 1j).item() == complex(0, 2**70)
    assert hl.sum(2**70, dtype=hl.float64).item() == 2.0**70 and hl.sum(300, dtype=hl.int16).item() == 300
    with pytest.raises(OverflowError, match="300 does not fit int8"):
        hl.sum(300, dtype=hl.int8)


@pytest.mark.parametrize("name", [n for n in REAL if n[0] in "iu"])
def test_w22_ints_beside_integer_tensors_fit_or_raise(name):
    d = getattr(hl, name)
    info, one = hl.iinfo(d), hl.ones((2,), dtype=d)
    for i in [info.max, info.max + 1, info.min, info.min - 1, *HUGE]:
        fits = info.min <= i <= info.max
        attempts = [
            lambda i: one * i,
            lambda i: hl.maximum(i, one),
            lambda i: hl.where(one == 1, one, i),
            lambda i: i | one,
            lambda i: hl._C_engine.add(one, i),
            lambda i: hl._C_engine.where(one == 1, i, one),
        ]
        for attempt in attempts:
            if fits:
                assert attempt(i).dtype == d
            else:
                with pytest.raises(OverflowError, match=name) as caught:
                    attempt(i)
                assert str(i) in str(caught.value) or "bits" in str(caught.value)
        want = [min(1, max(i, info.min))] * 2
        assert (
            hl.clip(one, None, i).tolist() == want
            and hl.clip(one, i, info.max).tolist() == [min(max(1, i), info.max)] * 2
        )


# ---- C4: numbers in each position -------------------------------------------------------------------------------

SAMPLE = [True, 3, -2, 0.5, 2 + 1j, 2**70, math.nan, None]


def arguments(name):
    """Every mix of tensors and numbers for an op's operands."""
    facts = _C._op_facts(name)
    tensors = [hl.zeros(3), hl.asarray([1, 0, 2]), hl.asarray([True, False, True]), hl.asarray([1j, 2, 0])]
    tensors += [hl.asarray([200, 0, 1], dtype=hl.uint8), hl.zeros((0,)), np.ones(3), np.float32(2), np.int8(3)]
    count = 2 if facts["arity"] < 0 else facts["arity"]
    tensors += [hl.ones((2, 3))] if name == "matrix_transpose" else []
    pool = SAMPLE + tensors
    if count == 3:
        pool = [True, 3, 0.5, 2j, 2**70, None, *tensors[:4], np.int8(3)]
    for args in itertools.product(pool, repeat=count):
        yield ([list(args)] if facts["arity"] < 0 else list(args)) + required(facts)


def required(facts):
    """Attributes without defaults."""
    values = {
        ("shape", None): (3,),
        ("axes", None): (0,),
        ("source", None): 0,
        ("destination", None): 0,
        ("dtype", "astype"): hl.float32,
        ("axis", "expand_dims"): 0,
    }
    keys = [k for f in facts["fields"] for k in ((f, None), (f, facts["name"])) if k in values]
    return [values[k] for k in keys]


@pytest.mark.parametrize("engine", [False, True], ids=["hl", "engine"])
@pytest.mark.parametrize("name", OPS)
def test_c4_numbers_in_every_position(name, engine):
    function = getattr(hl._C_engine if engine else _C, name)
    worked = 0
    for args in arguments(name):
        try:
            out = function(*args)
        except (TypeError, ValueError, OverflowError, IndexError, ArithmeticError, hl.HyaliteError) as error:
            text = str(error)
            assert f"{name}()" in text or f" {name}(" in text or "imag()" in text or "shape " in text, (args, error)
            continue
        worked += 1
        for t in out if isinstance(out, tuple) else (out,):
            assert isinstance(t, hl.Tensor)
            t.tolist()
    assert worked


def test_c4_a_number_before_tensor_bounds_takes_their_dtype():
    assert hl.clip(0.5, hl.zeros(3), None).tolist() == [0.5] * 3
    assert hl.clip(5, max=hl.ones(3)).dtype is hl.float32 and hl.clip(5, max=hl.ones(3)).tolist() == [1.0] * 3
    assert hl.clip(0.5, hl.asarray([0, 1]), 2).tolist() == [0.5, 1.0]
    assert hl.clip(7, hl.asarray([0], dtype=hl.int8), None).dtype is hl.int8
    with pytest.raises(OverflowError, match="300 does not fit int8"):
        hl.clip(300, hl.asarray([0], dtype=hl.int8))
    assert hl.clip(5, 0, 3).item() == 3 and hl.clip(2**63, 0, 2**64).item() == 2**63
    with pytest.raises(ValueError, match="min int 3 is above max int 1; exchange them"):
        hl.clip(hl.zeros(2), 3, 1)


def test_c4_take_refuses_a_fraction_as_an_index():
    with pytest.raises(hl.DtypeMismatch, match="no integers"):
        hl.take(hl.arange(3), 1.5)
    assert hl.take(hl.arange(3), 1).item() == 1


# ---- W28: bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [b"x", bytearray(b"x")], ids=["bytes", "bytearray"])
def test_w28_bytes_do_not_swallow_a_tensor(left):
    x = hl.ones(3)
    for attempt in (lambda: left + x, lambda: x + left, lambda: operator.iadd(left, x), lambda: operator.iadd(x, left)):
        with pytest.raises(TypeError):
            attempt()
    assert left == b"x" and x.tolist() == [1.0] * 3
    with pytest.raises(TypeError, match=r"add\(\): bytes and a tensor do not add; write"):
        b"x" + x
