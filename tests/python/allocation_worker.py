"""Run with HYALITE_POISON=1, under which every request of memory can be made to fail: makes each request of each
program fail once and compares what is left with what was there before. Prints the number of failures tried."""

import sys

import numpy as np
from test_record_faults import OPERANDS, OPERATORS, TARGETS

import hyalite as hl

RNG = np.random.default_rng(5)


def leaf(shape=(4,), dtype=hl.float64):
    if dtype in (hl.complex64, hl.complex128):
        return hl.asarray(RNG.uniform(0.3, 0.7, shape) + 0.5j, dtype=dtype).requires_grad_()
    return hl.asarray(RNG.uniform(0.55, 0.95, shape)).astype(dtype).requires_grad_()


def state(tensors):
    """Values, versions, histories and gradients, as things to compare."""
    with hl.no_grad():
        found = []
        for t in tensors:
            grad = None if t.grad is None else (t.grad.tolist(), t.grad.requires_grad)
            found.append((t.tolist(), t.version, t.grad_fn, t.requires_grad, t.is_leaf, grad))
    return found


def each_failure(name, build, most=2000):
    """`build` gives the tensors to watch and the program; the program must work after every failure."""
    failures = 0
    for n in range(1, most):
        watched, program = build()
        before = state(watched)
        hl._C._fail_after(n)
        try:
            program()
        except MemoryError:
            hl._C._fail_after(0)
        else:
            if hl._C._fail_after(0) > 0:
                return failures
            raise AssertionError(f"{name}: a failed request was passed over")
        failures += 1
        assert state(watched) == before, (
            f"{name}: request {n} failed and left\n{state(watched)}\nwhere there was\n{before}"
        )
        program()
        after, (fresh, again) = state(watched), build()
        again()
        same = [(a[1], a[3:5], a[5] is None) == (b[1], b[3:5], b[5] is None) for a, b in zip(after, state(fresh))]
        assert all(same), f"{name}: after request {n} had failed the program did something else"
    raise AssertionError(f"{name}: more than {most} requests")


def in_place(symbol, target, operand, recorded):
    def build():
        x, w = leaf().requires_grad_(recorded), leaf().requires_grad_(recorded)
        y = x * 1.5
        view = TARGETS[target](y)
        other = OPERANDS[operand](view, y, w)
        return [y, view, w], lambda: OPERATORS[symbol](view, other)

    return build


def assigned(key):
    def build():
        x, w = leaf(), leaf()
        y = x * 2

        def program():
            y[key] = w[0]

        return [y, x, w], program

    return build


def operands_of(facts):
    """Tensors that the op takes, or None."""
    dtype = next((d for d in (hl.float64, hl.complex128, hl.bool, hl.int64) if d in facts["dtypes"]), None)
    if dtype is None or facts["arity"] < 1 or "required" in facts.get("field_types", ()):
        return None
    inputs = []
    for i in range(facts["arity"]):
        if facts["condition"] and i == 0:
            inputs.append(hl.asarray([True, False, True, True]))
        elif dtype in (hl.float64, hl.complex128):
            inputs.append(leaf(dtype=dtype))
        else:
            inputs.append(hl.ones((4,), dtype=dtype))
    return inputs


WITH_ATTRIBUTES = {
    "reshape": lambda x: hl.reshape(x, (2, 2)),
    "permute_dims": lambda x: hl.permute_dims(x, (0,)),
    "broadcast_to": lambda x: hl.broadcast_to(x, (3, 4)),
    "expand_dims": lambda x: hl.expand_dims(x, axis=0),
    "astype": lambda x: hl.astype(x, hl.float32),
    "moveaxis": lambda x: hl.moveaxis(x, 0, -1),
    "matrix_transpose": lambda x: hl.matrix_transpose(hl.reshape(x, (2, 2))),
}


def listed(name, facts):
    """The op of the list, forward; None where it needs operands of its own."""
    inputs = operands_of(facts)
    if inputs is None or name in ("take", "matmul", "scatter_add", "unstack"):
        return None
    function = WITH_ATTRIBUTES.get(name, getattr(hl, name))
    return lambda: (inputs, lambda: function(*inputs))


def walked(name, facts, create_graph, again):
    make = listed(name, facts)

    def build():
        inputs, function = make()
        for x in inputs:
            x.grad = None
        out = function()
        parts = [p for p in (out if isinstance(out, tuple) else (out,)) if p.requires_grad]
        seeds = [hl.ones(p.shape, dtype=p.dtype) for p in parts]
        if again:
            for x in inputs:
                if x.requires_grad:
                    x.grad = hl.ones(x.shape, dtype=x.dtype)
        return inputs, lambda: hl.backward(parts, seeds, create_graph=create_graph)

    return build


def own_programs():
    x, m, b = leaf((2, 4)), leaf((4, 3)), leaf((3, 2, 4))
    index = hl.asarray([1, 0, 1])
    forward = {
        "matmul": lambda: x @ m, "batched": lambda: b @ m, "take": lambda: hl.take(m, index, axis=1),
        "concat": lambda: hl.concat([x, x, x * 1], axis=1), "stack": lambda: hl.stack([x, x]),
        "index": lambda: x[1, ::2], "mask": lambda: m[m > 0.7], "array": lambda: m[index],
        "astype": lambda: x.astype(hl.float32),
        "mixed": lambda: x + x.astype(hl.float32), "number": lambda: 2 ** x, "broadcast": lambda: x * b,
        "several": lambda: divmod(x, b), "softmax": lambda: hl.softmax(hl.tanh(x) @ m, axis=-1),
    }  # fmt: skip
    for name, function in forward.items():
        yield name, lambda function=function: ([x, m, b], function)
        for create_graph in (False, True):

            def build(function=function, create_graph=create_graph):
                for t in (x, m, b):
                    t.grad = None
                out = function()
                parts = [p for p in (out if isinstance(out, tuple) else (out,)) if p.requires_grad]
                seeds = [hl.ones(p.shape, dtype=p.dtype) for p in parts]
                return [x, m, b], lambda: hl.backward(parts, seeds, create_graph=create_graph)

            yield f"{name}, backward, create_graph={create_graph}", build


def programs():
    for name in hl._C._op_names():
        facts = hl._C._op_facts(name)
        if not hasattr(hl, name) or listed(name, facts) is None:
            continue
        yield name, listed(name, facts)
        if facts["has_gradient"] and any(t.requires_grad for t in operands_of(facts)):
            for create_graph in (False, True):
                for again in (False, True):
                    title = f"{name}, backward, create_graph={create_graph}, {'added' if again else 'first'}"
                    yield title, walked(name, facts, create_graph, again)
    for symbol in OPERATORS:
        for target in TARGETS:
            for operand in OPERANDS:
                for recorded in (True, False):
                    yield f"{target} {symbol} {operand}", in_place(symbol, target, operand, recorded)
    for key in (0, slice(1, 3), slice(None, None, -2), ..., None, hl.asarray([True, False, True, True])):
        yield f"x[{key}] = v", assigned(key)
    yield from own_programs()


if __name__ == "__main__":
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    total = count = 0
    for title, build in programs():
        if only in title:
            total += each_failure(title, build)
            count += 1
    print(f"{count} programs, {total} failed requests")
