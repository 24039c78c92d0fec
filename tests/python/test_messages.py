"""Every public callable with a dozen wrong things for each argument: it works, or says what is wrong in our words."""

import inspect
import os
import re
import types

import numpy as np
import pytest

import hyalite as hl
from hyalite import _C

X = hl.ones((2, 3))


class Hostile:
    """An object whose every conversion fails."""

    def __index__(self):
        raise RuntimeError("hostile __index__")

    def __iter__(self):
        raise RuntimeError("hostile __iter__")

    def __repr__(self):
        raise RuntimeError("hostile __repr__")


WRONG = {
    "None": None, "text": "a", "empty text": "", "bytes": b"a", "float": 2.5, "int": 7, "negative": -9, "huge": 2**70,
    "nan": float("nan"), "complex": 1j, "object": object(), "list": [1, 2], "list of text": ["a"], "empty list": [],
    "ragged": [[1], [1, 2]], "dict": {"a": 1}, "class": int, "function": len, "dtype": hl.float32, "name": "float32",
    "tensor": hl.ones(3), "integers": hl.asarray([9, 9]), "ndarray": np.ones((2, 2)), "strings": np.array(["a"]),
    "numpy dtype": np.float32, "module": os, "slice": slice(1), "flag": True,
}  # fmt: skip

# A right value for each parameter; `function.parameter` goes before `parameter`.
RIGHT = {
    "x": X, "x1": X, "x2": X, "arrays": [X, X], "axis": 0, "keepdims": True, "dtype": hl.float32, "shape": (2, 3),
    "axes": (1, 0), "min": 0, "max": 1, "condition": X > 0, "indices": hl.asarray([0]), "slope": 0.1, "check": False,
    "copy": None, "device": "cpu", "fill_value": 1.0, "start": 0, "stop": 3, "step": 1, "num": 3, "endpoint": True,
    "n_rows": 2, "n_cols": 2, "k": 0, "obj": [1.0], "requires_grad": False, "from_": hl.int8, "to": hl.int16,
    "kind": "integral", "type": hl.float32, "arrays_and_dtypes": [hl.int8, 1], "source": 0, "destination": 1,
    "op": "add", "language": "c++",
    "gradient": None, "shapes": [(2, 1), (1, 3)], "precision": 4, "threshold": 1000, "edgeitems": 3,
    "linewidth": 75, "suppress": False, "n": 2, "bytes": 0, "mode": False, "enabled": True, "sizes": [6],
    "reshape.shape": (6,), "Tensor.reshape.shape": None, "astype.copy": True, "squeeze.axis": None,
    "squeeze.x": hl.ones((2, 1)), "Tensor.squeeze.x": hl.ones((2, 1)), "iinfo.type": hl.int32,
    "from_dlpack.x": np.ones(3), "broadcast_to.shape": (2, 3), "matmul.x2": hl.ones((3, 2)),
    "Tensor.matmul.x2": hl.ones((3, 2)), "imag.x": X.astype(hl.complex64), "Tensor.imag.x": X.astype(hl.complex64),
    "stream": None, "spec": ".2f", "Tensor.__format__.self": hl.ones(()), "ndigits": 1, "api_version": None,
    "Tensor.item.self": hl.ones(()), "hook": lambda g: g, "retain_graph": False, "create_graph": False,
    "isdtype.dtype": hl.int8, "inputs": None,
    "autocast.dtype": hl.bfloat16, "Tensor.astype.copy": True, "Tensor.squeeze.axis": None,
}  # fmt: skip
for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "bitwise_invert"):
    for place in ("x", "x1", "x2"):
        RIGHT[f"{name}.{place}"] = hl.ones((2,), dtype=hl.int32)
    for place in ("x", "x1", "x2"):
        RIGHT[f"Tensor.{name}.{place}"] = hl.ones((2,), dtype=hl.int32)

# Their arguments are functions, graphs or modules' own, and have tests beside them.
ELSEWHERE = {
    "explain", "Trace", "Tensor", "Function", "backward", "grad", "gradients", "hessian", "jacobian", "jvp", "vjp",
    "value_and_grad", "stop_gradient", "checkpoint", "gradcheck", "detect_anomaly", "anomaly", "dtype", "no_grad",
    "enable_grad", "retain_grad", "compile", "CompiledFunction", "Plan", "Verification", "verify",
    "device", "eval",
    "Tensor.backward", "Tensor.register_hook", "Tensor.retain_grad",
}  # fmt: skip

METHODS = [n for n in dir(hl.Tensor) if callable(getattr(hl.Tensor, n)) and not n.startswith("_")]
METHODS += ["__format__", "__round__", "__array_namespace__"]
FUNCTIONS = [
    n
    for n in dir(hl)
    if not n.startswith("_") and callable(getattr(hl, n)) and not isinstance(getattr(hl, n), hl.dtype)
]
CALLABLES = {n: getattr(hl, n) for n in FUNCTIONS} | {f"Tensor.{n}": getattr(hl.Tensor, n) for n in METHODS}
CALLABLES = {
    n: f
    for n, f in CALLABLES.items()
    if n not in ELSEWHERE and not (isinstance(f, type) and issubclass(f, BaseException))
}

# What others say when nobody checked before them.
RAW = re.compile(
    r"incompatible function arguments|Invoked with|has no attribute|bad_cast|std::|nanobind|basic_string|not iterable"
    r"|cannot be interpreted|must be real number|index out of range$|not supported between|unsupported operand"
    r"|too large to convert|argument \d|positional argument|not subscriptable|hostile|can't convert|unhashable"
    r"|expected .* got|object cannot|only integer scalar|cannot convert|not callable|__index__"
)
OURS = (TypeError, ValueError, IndexError, OverflowError, MemoryError, BufferError, hl.HyaliteError)


def parameters(function):
    return [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]


def right(name, parameter):
    for key in (f"{name}.{parameter.name}", parameter.name):
        if key in RIGHT:
            return RIGHT[key]
    if parameter.name == "self":
        return X
    raise AssertionError(f"no right value for {name}: {parameter.name}; add it to RIGHT")


def call(function, params, values):
    args, named = [], {}
    for p in params:
        if p.kind is p.VAR_POSITIONAL:
            args += values[p.name]
        elif p.kind is p.KEYWORD_ONLY:
            named[p.name] = values[p.name]
        else:
            args.append(values[p.name])
    return function(*args, **named)


@pytest.fixture(autouse=True)
def settings_come_back():
    threads, limit = hl.get_num_threads(), hl.memory_stats()["limit_bytes"]
    yield
    hl.set_num_threads(threads)
    hl.set_memory_limit(limit)
    hl.use_deterministic_algorithms(False)
    hl.set_printoptions(precision=8, threshold=1000, edgeitems=3, linewidth=75, suppress=False)


def test_f4_right_values_work():
    for name, function in CALLABLES.items():
        params = parameters(function)
        call(function, params, {p.name: right(name, p) for p in params})


@pytest.mark.parametrize("name", CALLABLES)
def test_f4_every_argument_refuses_in_our_words(name):
    function, short = CALLABLES[name], name.rpartition(".")[2]
    params = parameters(function)
    for place in params:
        if place.name == "self":
            continue
        for what, wrong in (WRONG | {"hostile": Hostile()}).items():
            values = {p.name: right(name, p) for p in params}
            values[place.name] = [wrong] if place.kind is place.VAR_POSITIONAL else wrong
            if place.kind is place.VAR_POSITIONAL and "shape" in values:
                values["shape"] = None
            try:
                call(function, params, values)
            except OURS as error:
                text = str(error)
                where = f"{name}({place.name}={what}): {type(error).__name__}: {text}"
                assert not RAW.search(text), where
                assert re.match(r"\w+\(\)|unknown device|shape \(", text) or "\n" not in text and "; write" in text, (
                    where
                )
                assert short.strip("_") in text.split(";")[0] or not text.startswith(f"{short}"), where
                continue
            except RuntimeError as error:
                assert what == "hostile" and "hostile" in str(error), (name, place.name, what, error)


CASES = {
    "asarray None": (lambda: hl.asarray(None), "asarray(): "),
    "zeros tuple": (lambda: hl.zeros((2.0,)), "shape must be an integer or a tuple of integers, not float 2.0"),
    "zeros float": (lambda: hl.zeros(2.0), "zeros(): shape must be an integer or a tuple of integers, not float 2.0"),
    "linspace": (lambda: hl.linspace(0, 1, 5.0), "linspace(): num must be an integer, not float 5.0; write int(n)"),
    "eye": (lambda: hl.eye(2.0), "eye(): n_rows must be an integer, not float 2.0; write int(n)"),
    "threads": (lambda: hl.set_num_threads("a"), "set_num_threads(): n must be an integer, not str 'a'; "),
    "limit": (lambda: hl.set_memory_limit(-1), "set_memory_limit(): bytes is -1; write 0 or more"),
    "print": (lambda: hl.set_printoptions(precision="a"), "precision must be an integer, not str 'a'"),
    "isdtype": (lambda: hl.isdtype("float32", "integral"), "isdtype(): dtype must be a dtype such as hl.float32, not "
                                                           "str 'float32'; write hl.float32"),
    "dtype": (lambda: hl.dtype("float32"), "dtype(): dtypes are there already; write hl.float32"),
    "dtype name": (lambda: hl.zeros(2, dtype="float32"), "zeros(): dtype must be a dtype such as hl.float32, not str "
                                                         "'float32'; write hl.float32"),
    "where": (lambda: hl.where(hl.asarray([0, 1]), 1.0, 2.0), "where(): condition must be bool, not int64; write "
                                                              "condition != 0"),
    "minus": (lambda: -hl.asarray([True]), "negative(): bool has no meaning here; write ~x"),
    "bool minus": (lambda: hl.asarray([True]) - hl.asarray([True]), "write x1 ^ x2"),
    "not of floats": (lambda: ~hl.ones(2), "bitwise_invert(): float32 has no meaning here; write x.astype(hl.int64)"),
    "less of complex": (lambda: hl.asarray([1j]) < 1, "write hl.abs(x), hl.real(x) or hl.imag(x)"),
    "float8": (lambda: hl.ones(2, dtype=hl.float8_e5m2) + 1, "float8_e5m2"),
    "flip list": (lambda: hl.flip([[1, 2]]), "flip(): x must be a tensor, an array or a number, not list; write "
                                             "hl.asarray(x)"),
    "add list": (lambda: hl.add([1], X), "x1 must be a tensor, an array or a number, not list; write hl."),
    "format": (lambda: f"{X:.3f}", "format(): '.3f' is for one number, not for shape (2, 3); write x.tolist()"),
    "out": (lambda: X.sum(out=X), "sum(): out= is not there; write"),
    "device": (lambda: X.to_device(3), "to_device(): device must be the name of a device such as 'cpu', not int 3"),
    "beyond floats": (lambda: hl.asarray(10**400, dtype=hl.float32), "an int of 1329 bits is beyond every float"),
    "constructor": (lambda: hl.Tensor(3, "a"), "Tensor(): dtype must be a dtype such as hl.float32, not str 'a'"),
    "requires_grad": (lambda: setattr(hl.ones(2), "requires_grad", "a"), "must be True or False, not str 'a'"),
    "grad": (lambda: setattr(X, "grad", 3), "a tensor of the same shape and dtype, float32 (2, 3), not int 3"),
    "mT": (lambda: hl.ones(3).mT, "mT needs two axes or more, not 1; write hl.expand_dims(x, 0).mT"),
    "imag": (lambda: hl.imag(X), "imag(): float32 has no meaning here; write x.astype(hl.complex64)"),
    "hook": (lambda: X.register_hook(3), "register_hook(): hook must be a function of the gradient, not int 3; write"),
    "runs": (lambda: hl.explain(lambda: X + 1, runs="a"), "explain(): runs must be an integer, not str 'a'"),
    "take axis": (lambda: hl.take(X, hl.asarray([0]), axis=None), "axis is None, and x has 2 dimensions; write axis=0"),
}  # fmt: skip


@pytest.mark.parametrize("attempt, text", CASES.values(), ids=CASES)
def test_f4_messages_of_the_list(attempt, text):
    with pytest.raises((TypeError, ValueError, OverflowError)) as caught:
        attempt()
    assert text in str(caught.value)


# ---- F3: functions written in Python take what ops take ---------------------------------------------------------

OPERANDS = {"ndarray": np.arange(6.0).reshape(2, 3), "scalar": np.float32(2), "number": 3.0, "tensor": X}
ARRAY_FUNCTIONS = {
    "flip": hl.flip, "matrix_transpose": hl.matrix_transpose, "moveaxis": lambda x: hl.moveaxis(x, 0, 1),
    "reshape": lambda x: hl.reshape(x, -1), "expand_dims": lambda x: hl.expand_dims(x, 0), "squeeze": hl.squeeze,
    "unstack": lambda x: hl.unstack(x)[0], "stack": lambda x: hl.stack([x, x]), "concat": lambda x: hl.concat([x, x]),
    "astype": lambda x: hl.astype(x, hl.float64), "zeros_like": hl.zeros_like, "ones_like": hl.ones_like,
    "full_like": lambda x: hl.full_like(x, 2), "empty_like": hl.empty_like,
    "broadcast_arrays": lambda x: hl.broadcast_arrays(x, X)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAY_FUNCTIONS)
def test_f3_python_level_functions_take_what_ops_take(name):
    needs_axes = name in ("matrix_transpose", "moveaxis", "unstack", "concat")
    for kind, x in OPERANDS.items():
        if needs_axes and kind in ("scalar", "number"):
            with pytest.raises((ValueError, IndexError, TypeError), match=rf"{name}\(\): "):
                ARRAY_FUNCTIONS[name](x)
            continue
        assert isinstance(ARRAY_FUNCTIONS[name](x), hl.Tensor)
    for x in ([[1, 2]], None, "a", object()):
        with pytest.raises(TypeError, match=rf"{name}\(\): .*; write "):
            ARRAY_FUNCTIONS[name](x)


def test_f3_numpys_own_functions_reach_the_methods():
    x = hl.asarray(np.arange(6.0).reshape(2, 3))
    for f in (np.sum, np.prod, np.max, np.min, np.any, np.all, np.mean, np.argmax, np.argmin):
        for options in ({}, {"axis": 1}):
            got = f(x, **options)
            assert isinstance(got, hl.Tensor), f
            np.testing.assert_array_equal(got.numpy(), f(x.numpy(), **options))
    np.testing.assert_array_equal(np.clip(x, 1, 4), np.clip(x.numpy(), 1, 4))


def test_f3_format_round_and_reversed():
    loss = hl.asarray(2.34567, dtype=hl.float64)
    assert f"{loss:.3f}" == "2.346" and f"{loss:>10.1e}" == "   2.3e+00" and f"{loss}" == str(loss)
    assert f"{hl.asarray(7):04d}" == "0007" and f"{X}" == str(X) and f"{hl.asarray(True)}" == "True"
    assert f"{hl.asarray(1.5, dtype=hl.bfloat16):.2f}" == "1.50" and f"{hl.asarray(1 + 2j):.1f}" == "1.0+2.0j"
    assert round(loss).item() == 2.0 and round(loss, 2).item() == 2.35 and round(hl.asarray(2.5)).item() == 2.0
    assert round(hl.asarray([15, 25, -15, 149, 151, -128], dtype=hl.int16), -1).tolist() == [
        20,
        20,
        -20,
        150,
        150,
        -130,
    ]
    assert round(hl.asarray([1234.5, 250.0]), -2).tolist() == [1200.0, 200.0] and round(hl.asarray(7), 3).item() == 7
    assert round(hl.asarray([1, 127], dtype=hl.int8), -3).tolist() == [0, 0]
    for n in range(-4, 4):
        for v in range(-2000, 2000, 37):
            assert round(hl.asarray(v), n).item() == round(v, n), (v, n)
    assert [r.tolist() for r in reversed(hl.asarray([[1, 2], [3, 4]]))] == [[3, 4], [1, 2]]
    with pytest.raises(TypeError, match="write x.item"):
        reversed(hl.ones(()))
    leaf = hl.ones(3).requires_grad_()
    sum(reversed(leaf * 2)).backward()
    assert leaf.grad.tolist() == [2.0] * 3


# ---- C3: private bindings ---------------------------------------------------------------------------------------

PRIVATE = {n: getattr(_C, n) for n in dir(_C) if not isinstance(getattr(_C, n), types.ModuleType)}
PRIVATE = {n: f for n, f in PRIVATE.items() if callable(f) and not isinstance(f, type)}


def argument_count(function):
    """How many arguments nanobind's text of a signature shows."""
    text = (getattr(function, "__nb_signature__", None) or [("",)])[0][0]
    inside = text[text.find("(") + 1 : text.rfind(")")] if "(" in text else ""
    depth, count = 0, 1 if inside.strip() else 0
    for c in inside:
        depth += c in "[("
        depth -= c in "])"
        count += c == "," and depth == 0
    return count


@pytest.mark.parametrize("name", PRIVATE)
def test_c3_private_bindings_survive_anything(name):
    function = PRIVATE[name]
    before = {
        "_set_grad_mode": (True,),
        "_set_autocast": (False, hl.bfloat16),
        "_set_printoptions": ({},),
        "set_memory_limit": (hl.memory_stats()["limit_bytes"],),
    }.get(name)
    things = [
        None,
        "a",
        1,
        -1,
        2**70,
        1.5,
        [],
        [None],
        [1],
        (),
        {},
        b"",
        X,
        hl.ones((0,)),
        [X],
        hl.float32,
        object(),
        len,
    ]
    things += [[X, None], [hl.ones(3).requires_grad_().sum()], True, [[]], Hostile(), np.ones(2), type]
    count = len(_C._op_facts(name)["params"]) + 1 if name in _C._op_names() else argument_count(function)
    rng = np.random.default_rng(len(name))
    calls = [[t] * count for t in things] + [
        [things[i] for i in rng.integers(0, len(things), count)] for _ in range(300)
    ]
    calls += [[], [None] * (count + 1)]
    for args in calls:
        try:
            function(*args)
        except Exception as error:
            assert not isinstance(error, SystemError), (args, error)
    if before:
        function(*before)
    assert (hl.ones(2) + 1).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("cls", [type(hl.add), _C.Node, _C.RemovableHandle], ids=lambda c: c.__name__)
def test_c3_private_classes_are_not_made_by_hand(cls):
    with pytest.raises(TypeError):
        cls()
