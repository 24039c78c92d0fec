"""Derivatives of functions: grad, vjp and their like, and backward from tensors."""

import math
from _operator import index  # operator's, without the module around it

from . import _C, _tree
from ._modes import _wraps, enable_grad, no_grad

__all__ = [
    "backward", "grad", "gradcheck", "gradients", "hessian", "jacobian", "jvp", "stop_gradient", "value_and_grad",
    "vjp",
]  # fmt: skip

_DIFFERENTIABLE = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


# ---- what functions are given and give --------------------------------------------------------------------------


def _check_callable(f, name):
    if not callable(f):
        advice = "; of tensors, write hl.gradients(outputs, inputs)" if isinstance(f, _C.Tensor) else ""
        raise TypeError(f"{name}(): f must be a function, not {_kind_of(f)}{advice}")


def _kind_of(x):
    return "None" if x is None else f"the {type(x).__name__} {x!r}" if isinstance(x, (int, str)) else type(x).__name__


def _differentiable(x, name, what):
    """`x` as a tensor that has a gradient; refuses others by their name."""
    if not isinstance(x, _C.Tensor):
        if isinstance(x, int):  # bool too
            raise TypeError(f"{name}(): {what} is {_kind_of(x)}, which has no gradient; write {float(x)!r}")
        try:
            x = _C._asarray(x, None, None)
        except (TypeError, ValueError):
            raise TypeError(
                f"{name}(): {what} is {_kind_of(x)}; write a tensor, a float, or a list, tuple or dict of them"
            ) from None
    if x.dtype.name not in _DIFFERENTIABLE:
        raise TypeError(
            f"{name}(): {what} is {x.dtype.name}, which has no gradient; write x.astype(hl.float32), or leave it out "
            "of the arguments to differentiate by"
        )
    return x


class _Inputs:
    """Arguments to differentiate by, each leaf made a tensor of its own that requires grad.

    A tensor that requires grad already becomes a new node over it, so that gradients reach through; the others become
    leaves that nobody else has, so that a graph that ends in nothing else need not be kept.
    """

    def __init__(self, trees, names, function):
        flat = [_tree.flatten(tree, name) for tree, name in zip(trees, names, strict=True)]
        self.function = function
        self.counts = [len(leaves) for leaves, _, _ in flat]
        self.rebuilds = [rebuild for _, _, rebuild in flat]
        self.names = [n for _, names, _ in flat for n in names]
        leaves = [x for leaves, _, _ in flat for x in leaves]
        self.given = [_differentiable(x, function, n) for x, n in zip(leaves, self.names, strict=True)]
        self.fresh = [_C.positive(x) if x.requires_grad else _C._argument(x) for x in self.given]
        self.own = [t for t, x in zip(self.fresh, self.given, strict=True) if not x.requires_grad]

    def trees(self, leaves=None):
        """The arguments with `leaves` in them."""
        leaves = iter(self.fresh if leaves is None else leaves)
        return [
            rebuild([next(leaves) for _ in range(count)])
            for count, rebuild in zip(self.counts, self.rebuilds, strict=True)
        ]

    def like(self, gradients):
        """Gradients by leaf, with zeros where there is no path."""
        return [
            _C._full(list(x.shape), 0, x.dtype, x.device) if g is None else g
            for g, x in zip(gradients, self.given, strict=True)
        ]

    def reach_others(self, tensors):
        """Whether the graph of any of the tensors ends in something that is not ours alone."""
        return _C._reaches_others(tensors, self.own)

    def settle(self, x):
        """A tensor of the result without its graph, if the graph ends in our own leaves only."""
        if isinstance(x, _C.Tensor) and x.requires_grad and not self.reach_others([x]):
            return x.detach()
        return x


def _numbers(argnums, args, name):
    """The places of the arguments to differentiate by."""
    whole = hasattr(argnums, "__index__") and not isinstance(argnums, bool)
    try:
        given = [index(argnums)] if whole else [index(n) for n in argnums]
    except TypeError:
        raise TypeError(f"{name}(): argnums must be an int or a tuple of ints, not {_kind_of(argnums)}") from None
    out = []
    for n in given:
        at = n + len(args) if n < 0 else n
        if not 0 <= at < len(args):
            count = f"{len(args)} positional argument{'' if len(args) == 1 else 's'}"
            raise IndexError(f"{name}(): argnums {n} is out of range for {count}; keyword arguments have no number")
        if at in out:
            raise ValueError(f"{name}(): argnums {tuple(given)} names argument {at} twice; name each once")
        out.append(at)
    return out


def _chosen(args, argnums, name):
    """The numbers of the differentiated arguments, and those arguments made ready."""
    numbers = _numbers(argnums, args, name)
    return numbers, _Inputs([args[i] for i in numbers], [f"argument {i}" for i in numbers], name)


def _placed(args, numbers, trees):
    args = list(args)
    for i, tree in zip(numbers, trees, strict=True):
        args[i] = tree
    return args


def _with_aux(result, has_aux, name):
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{name}(): with has_aux=True f must return a pair (value, aux), not {_kind_of(result)}")
    return result


def _one_number(value, name):
    """What f returned, as the one real number that has a gradient."""
    if value is None:
        raise TypeError(f"{name}(): f returned None; it must return a tensor of one element: is a return missing?")
    if isinstance(value, (list, tuple, dict)):
        advice = "; write has_aux=True for a pair (value, aux)" if isinstance(value, tuple) and len(value) == 2 else ""
        raise TypeError(f"{name}(): f returned a {type(value).__name__}, not a tensor of one element{advice}")
    if not isinstance(value, _C.Tensor):
        if isinstance(value, (bool, str)):
            raise TypeError(f"{name}(): f returned {_kind_of(value)}; it must return a tensor of one element")
        number = isinstance(value, (int, float))
        try:
            # A constant: a Python number has no path to the arguments.
            value = _C.asarray(float(value) if number else value)
        except (TypeError, ValueError):
            raise TypeError(f"{name}(): f returned {_kind_of(value)}, not a tensor of one element") from None
    if value.size != 1:
        raise _C.ShapeMismatch(
            f"{name}(): f returned shape {value.shape}, and a gradient is that of one number; write hl.sum() of it, or "
            "hl.jacobian(f) or hl.vjp(f, ...)"
        )
    if value.dtype.name.startswith("complex"):
        raise TypeError(
            f"{name}(): f returned {value.dtype.name}, and a gradient is that of a real number; write hl.real(z), "
            "hl.abs(z), or hl.vjp(f, ...)"
        )
    if value.dtype.name not in _DIFFERENTIABLE:
        raise TypeError(f"{name}(): f returned {value.dtype.name}, which has no gradient; return a floating tensor")
    return value


# ---- gradients of functions -------------------------------------------------------------------------------------


def _value_and_grad(f, argnums, has_aux, name, args, kwargs):
    recording = _C.is_grad_enabled()
    with enable_grad():
        numbers, inputs = _chosen(args, argnums, name)
        result = f(*_placed(args, numbers, inputs.trees()), **kwargs)
        value, aux = _with_aux(result, has_aux, name)
        value = _one_number(value, name)
        graph = recording and inputs.reach_others([value])
        if value.requires_grad:
            found = _C._grad([value], inputs.fresh, [], graph, graph)
        else:
            found = [None] * len(inputs.fresh)
        if has_aux:
            aux = _tree.map_leaves(inputs.settle if recording else stop_gradient, aux)
    trees = inputs.trees(inputs.like(found))
    return value if graph else value.detach(), aux, trees[0] if hasattr(argnums, "__index__") else tuple(trees)


def value_and_grad(f, argnums=0, has_aux=False):
    """A function giving `(f(*args), gradient)`, the gradient by the arguments in `argnums` (a tuple gives a tuple).

    `f` returns one real element, or a pair of it and anything else with `has_aux`; the result is then
    `((value, aux), gradient)`. An argument may be a tensor, a float, or nested lists, tuples and dicts of them; its
    gradient has the same form, with zeros where there is no path. What `f` closes over is differentiated through, so
    these functions nest for higher orders: where the value depends on other tensors that require grad, value and
    gradient keep their graphs. Raises TypeError naming an argument or a result that has no gradient.
    """
    _check_callable(f, "value_and_grad")

    @_wraps(f)
    def wrapped(*args, **kwargs):
        value, aux, gradient = _value_and_grad(f, argnums, has_aux, "value_and_grad", args, kwargs)
        return ((value, aux) if has_aux else value), gradient

    return wrapped


def grad(f, argnums=0, has_aux=False):
    """A function giving the gradient of `f` by the arguments in `argnums`; it nests for higher orders.

    As `value_and_grad` without the value; with `has_aux` it gives `(gradient, aux)`.
    """
    _check_callable(f, "grad")

    @_wraps(f)
    def wrapped(*args, **kwargs):
        _, aux, gradient = _value_and_grad(f, argnums, has_aux, "grad", args, kwargs)
        return (gradient, aux) if has_aux else gradient

    return wrapped


class _Outputs:
    """The tensors that a function returned, as a tree."""

    def __init__(self, result, name):
        leaves, self.names, self.rebuild = _tree.flatten(result, "the result")
        if not leaves:
            raise TypeError(f"{name}(): f returned {_kind_of(result)}, no tensor: is a return missing?")
        self.leaves = []
        for x, what in zip(leaves, self.names, strict=True):
            if not isinstance(x, (_C.Tensor, float, int, complex)):
                raise TypeError(f"{name}(): {what} is {_kind_of(x)}; f must return tensors")
            # A Python integer is a constant as a float is; an integer tensor was meant as one.
            self.leaves.append(_C.asarray(float(x) if type(x) is int else x))

    def zeros(self, i):
        t = self.leaves[i]
        return _C._full(list(t.shape), 0, t.dtype, t.device)


def _matched(leaves, templates, names, function, what):
    """Tensors that must look like the templates, of their shapes and dtypes; numbers become 0-d ones."""
    out = []
    for x, t, n in zip(leaves, templates, names, strict=True):
        if not isinstance(x, _C.Tensor):
            x = _C._asarray(x, t.dtype, None)
        if x.shape != t.shape:
            raise _C.ShapeMismatch(f"{function}(): {what} of {n} have shape {x.shape}, it has {t.shape}")
        if x.dtype is not t.dtype:
            raise _C.DtypeMismatch(
                f"{function}(): {what} of {n} are {x.dtype.name}, it is {t.dtype.name}; "
                f"write x.astype(hl.{t.dtype.name})"
            )
        out.append(x)
    return out


def vjp(f, *primals, has_aux=False):
    """The pair of `f(*primals)` and a function from its cotangents to those of the primals, a tuple.

    The function takes what `f` returned, tensors of that form, shapes and dtypes, and may be called again and again.
    With `has_aux`, `f` returns `(value, aux)` and the result is `(value, function, aux)`. Arguments, zeros and
    closures as in `value_and_grad`.
    """
    _check_callable(f, "vjp")
    recording = _C.is_grad_enabled()
    with enable_grad():
        inputs = _Inputs(primals, [f"argument {i}" for i in range(len(primals))], "vjp")
        value, aux = _with_aux(f(*inputs.trees()), has_aux, "vjp")
        outputs = _Outputs(value, "vjp")
        if has_aux:
            aux = _tree.map_leaves(inputs.settle if recording else stop_gradient, aux)
        graph = recording and inputs.reach_others(outputs.leaves)

    def pullback(cotangents):
        """The cotangents of the arguments, from those of the result."""
        leaves, names, _ = _tree.flatten(cotangents, "the result")
        if names != outputs.names:
            raise ValueError(
                f"vjp(): the cotangents {', '.join(names) or 'None'} do not have the form of "
                f"{', '.join(outputs.names)}; write the same lists, tuples and dicts"
            )
        given = _matched(leaves, outputs.leaves, outputs.names, "vjp", "cotangents")
        create = graph or (_C.is_grad_enabled() and any(g.requires_grad for g in given))
        return tuple(inputs.trees(inputs.like(_pulled_back(outputs, inputs, given, create))))

    settled = outputs.rebuild([inputs.settle(x) if recording else x.detach() for x in outputs.leaves])
    return (settled, pullback, aux) if has_aux else (settled, pullback)


def _pulled_back(outputs, inputs, cotangents, create):
    roots = [(t, g) for t, g in zip(outputs.leaves, cotangents, strict=True) if t.requires_grad]
    if not roots:
        return [None] * len(inputs.fresh)
    return _C._grad([t for t, _ in roots], inputs.fresh, [g for _, g in roots], True, create)


def jvp(f, primals, tangents, *, has_aux=False):
    """The pair of `f(*primals)` and its derivative along `tangents`, by forward mode: one pass beside the values.

    `primals` and `tangents` are tuples of as many arguments, alike in form, shapes and dtypes. Each op pushes the
    tangents of its operands on as it is computed; nothing is walked backward, so what is written in place afterwards
    does not matter. Nests with itself and with `grad`, either way round. With `has_aux`, `f` returns `(value, aux)`
    and the result is `(value, tangent, aux)`. Arguments, zeros and closures as in `value_and_grad`.
    """
    _check_callable(f, "jvp")
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise TypeError(f"jvp(): {what} must be a tuple of arguments, not {_kind_of(given)}; write (x,)")
    if len(tangents) != len(primals):
        raise ValueError(f"jvp(): {len(tangents)} tangents for {len(primals)} primals; write one for each")
    recording = _C.is_grad_enabled()
    forward = _C._Forward(recording)
    with enable_grad():
        names = [f"argument {i}" for i in range(len(primals))]
        inputs = _Inputs(primals, names, "jvp")
        flat = [_tree.flatten(t, name) for t, name in zip(tangents, names, strict=True)]
        if [n for _, names, _ in flat for n in names] != inputs.names:
            raise ValueError("jvp(): the tangents must be lists, tuples and dicts of the same form as the primals")
        given = _matched([x for leaves, _, _ in flat for x in leaves], inputs.given, inputs.names, "jvp", "tangents")
        for fresh, tangent, x in zip(inputs.fresh, given, inputs.given, strict=True):
            forward.seed(fresh, tangent, x.requires_grad)
        forward.enter()
        try:
            value, aux = _with_aux(f(*inputs.trees()), has_aux, "jvp")
        finally:
            forward.leave()
        outputs = _Outputs(value, "jvp")
        found = [forward.tangent(t) for t in outputs.leaves]
        found = [outputs.zeros(i) if t is None else t for i, t in enumerate(found)]
    settle = inputs.settle if recording else stop_gradient
    value, tangent = (outputs.rebuild([settle(t) for t in ts]) for ts in (outputs.leaves, found))
    return (value, tangent, _tree.map_leaves(settle, aux)) if has_aux else (value, tangent)


def jacobian(f, argnums=0, has_aux=False):
    """A function giving all derivatives of `f`'s result by the arguments in `argnums`, of shape result + argument.

    A result or an argument that is a list, tuple or dict gives one of them for each tensor, the result's outside. A
    complex result or argument counts as `vjp` counts it: row i is the gradient of the real part of element i. One
    walk for each element of the result, backward, or of the arguments, forward, whichever are fewer.
    """
    _check_callable(f, "jacobian")

    @_wraps(f)
    def wrapped(*args, **kwargs):
        recording = _C.is_grad_enabled()
        with enable_grad():
            numbers, inputs = _chosen(args, argnums, "jacobian")
            value, aux = _with_aux(f(*_placed(args, numbers, inputs.trees()), **kwargs), has_aux, "jacobian")
            outputs = _Outputs(value, "jacobian")
            if has_aux:
                aux = _tree.map_leaves(inputs.settle if recording else stop_gradient, aux)
            graph = recording and inputs.reach_others(outputs.leaves)
            rows = _columns(outputs, inputs, graph) or [
                _rows(t, what, inputs, graph) for t, what in zip(outputs.leaves, outputs.names, strict=True)
            ]
        blocks = []
        for by_input in rows:
            trees = inputs.trees(by_input)
            blocks.append(trees[0] if hasattr(argnums, "__index__") else tuple(trees))
        out = outputs.rebuild(blocks)
        return (out, aux) if has_aux else out

    return wrapped


def _columns(outputs, inputs, graph):
    """By output and input, from forward mode, where that takes fewer walks; None where it does not."""
    tensors = outputs.leaves + inputs.given
    wide = sum(t.size for t in outputs.leaves) > sum(x.size for x in inputs.given)
    if not wide or any(t.dtype.name not in _DIFFERENTIABLE or t.dtype.name.startswith("complex") for t in tensors):
        return None
    blocks = [[] for _ in outputs.leaves]
    for fresh, x in zip(inputs.fresh, inputs.given, strict=True):
        columns = [[] for _ in outputs.leaves]
        for i in range(x.size):
            forward, seed = _C._Forward(graph), _C._full([x.size], 0, x.dtype, x.device)
            seed[i] = 1
            forward.seed(fresh, seed.reshape(x.shape), x.requires_grad)
            for k, t in enumerate(outputs.leaves):
                along = forward.tangent(t)
                columns[k].append(outputs.zeros(k) if along is None else along)
        for k, t in enumerate(outputs.leaves):
            shape = t.shape + x.shape
            if x.size == 0:
                blocks[k].append(_C._full(list(shape), 0, x.dtype, x.device))
                continue
            joined = _C.concat([_C.expand_dims(c, t.ndim) for c in columns[k]], t.ndim)
            blocks[k].append(_C.reshape(joined if joined.dtype is x.dtype else joined.astype(x.dtype), shape))
    return blocks


def _rows(output, what, inputs, graph):
    """By input: the gradient of each element of the output, stacked."""
    if output.dtype.name not in _DIFFERENTIABLE:
        raise TypeError(f"jacobian(): {what} is {output.dtype.name}, which has no gradient; return a floating tensor")
    shapes = [output.shape + x.shape for x in inputs.given]
    if not output.requires_grad or output.size == 0:
        return [_C._full(list(s), 0, x.dtype, x.device) for s, x in zip(shapes, inputs.given, strict=True)]
    rows = []
    flat = _C._full([output.size], 0, output.dtype, output.device)
    for i in range(output.size):
        seed = flat.copy()
        seed[i] = 1
        rows.append(inputs.like(_C._grad([output], inputs.fresh, [seed.reshape(output.shape)], True, graph)))
    stacked = [_C.concat([_C.expand_dims(r[k], 0) for r in rows], 0) for k in range(len(shapes))]
    return [_C.reshape(t, s) for t, s in zip(stacked, shapes, strict=True)]


def hessian(f, argnums=0, has_aux=False):
    """A function giving the second derivatives of `f`, of shape result + argument + argument.

    `f` may return any tensor; of one number the shape is argument + argument. A tuple in `argnums`, or an argument
    that is a list, tuple or dict, gives blocks as `jacobian` does, nested once for each derivative.
    """
    _check_callable(f, "hessian")
    return jacobian(jacobian(f, argnums, has_aux), argnums, has_aux)


# ---- gradients of tensors ---------------------------------------------------------------------------------------


def _tensors(given, name, what):
    """One tensor or a sequence of them, as a list."""
    if isinstance(given, _C.Tensor):
        return [given]
    try:
        given = list(given)
    except TypeError:
        raise TypeError(f"{name}(): {what} must be a tensor or a list of tensors, not {_kind_of(given)}") from None
    for i, x in enumerate(given):
        if not isinstance(x, _C.Tensor):
            raise TypeError(f"{name}(): {what}[{i}] is {_kind_of(x)}, not a tensor")
    return given


def _weights(given, roots, name):
    """A gradient for each root; None for one of a single element, which then counts once."""
    if given is None:
        return [None] * len(roots)
    # A number or an array is one gradient; a list of them is one for each root.
    several = isinstance(given, list | tuple) or (hasattr(given, "__next__") and not isinstance(given, _C.Tensor))
    weights = list(given) if several else [given]
    if len(weights) != len(roots):
        raise ValueError(f"{name}(): {len(weights)} gradients for {len(roots)} tensors; write one, or None, for each")
    return [
        w if w is None or isinstance(w, _C.Tensor) else _C._asarray(w, t.dtype, None)
        for w, t in zip(weights, roots, strict=True)
    ]


def gradients(outputs, inputs, gradients=None, *, retain_graph=False, create_graph=False, allow_unused=False):
    """The gradients of the sum of `outputs`, weighted by `gradients`, by each of `inputs`, leaves or not: a tuple.

    No tensor's `grad` changes. An output of more than one element, or a complex one, needs its weight. `create_graph`
    records the gradients, for higher orders, and keeps the graph. An input without a path raises AutogradError, or
    gives None with `allow_unused`.
    """
    roots, wanted = _tensors(outputs, "gradients", "outputs"), _tensors(inputs, "gradients", "inputs")
    if not roots or not wanted:
        raise ValueError("gradients(): outputs and inputs must not be empty")
    found = _C._grad(roots, wanted, _weights(gradients, roots, "gradients"), retain_graph, create_graph)
    if not allow_unused and None in [g if g is None else 0 for g in found]:
        at = [i for i, g in enumerate(found) if g is None]
        raise _C.AutogradError(
            f"gradients(): inputs[{at[0]}] has no path to the outputs; write allow_unused=True for None there"
        )
    return tuple(found)


def backward(roots, gradients=None, *, retain_graph=False, create_graph=False, inputs=None):
    """Adds the gradient of the weighted sum of `roots` to the grad of every leaf they depend on.

    With `inputs`, to the grad of these tensors only, leaves or not; one without a path is left as it is.
    """
    if inputs is not None:
        return _backward_to(roots, gradients, inputs, retain_graph, create_graph)
    roots = _tensors(roots, "backward", "roots")
    return _C._backward(roots, _weights(gradients, roots, "backward"), retain_graph, create_graph)


def _backward_to(roots, gradients, inputs, retain_graph, create_graph):
    roots, wanted = _tensors(roots, "backward", "roots"), _tensors(inputs, "backward", "inputs")
    if not wanted:
        raise ValueError("backward(): inputs must not be empty; leave it out for every leaf")
    once = list({id(t): t for t in wanted}.values())
    _C._backward_to(roots, once, _weights(gradients, roots, "backward"), bool(retain_graph), bool(create_graph))


def _keeper(tensor):
    """The hook of Tensor.retain_grad: it knows the tensor weakly, for the tensor's node holds the hook."""
    import weakref

    kept = weakref.ref(tensor)

    def keep(gradient):
        t = kept()
        if t is not None:
            t.grad = gradient.copy() if t.grad is None else t.grad + gradient

    return keep


def stop_gradient(x):
    """`x`, through which no gradient flows: the same memory without history.

    Takes lists, tuples and dicts of tensors too; what is no tensor stays as it is.
    """
    return _tree.map_leaves(lambda t: t.detach() if isinstance(t, _C.Tensor) else t, x)


# ---- gradcheck --------------------------------------------------------------------------------------------------


def _gauss(like, rng):
    """Random numbers of about 1 in the shape and dtype of a tensor."""
    whole = like.dtype.name.startswith("complex")
    draw = (lambda: complex(rng.gauss(0, 1), rng.gauss(0, 1))) if whole else (lambda: rng.gauss(0, 1))
    values = [draw() for _ in range(like.size)]
    return _C._asarray(values, like.dtype, None).reshape(like.shape) if values else like.detach().copy()


def _inner(pairs):
    """The real inner product of lists of tensors, as a number."""
    return math.fsum(_C.sum(_C.real(_C.conj(a.detach()) * b.detach())).item() for a, b in pairs if a.size)


def _double(x):
    return x.dtype.name in ("float64", "complex128")


def _double_leaves(flat):
    """Where the leaves stand whose derivatives differences can check."""
    return [i for i, x in enumerate(flat) if isinstance(x, _C.Tensor) and _double(x)]


def _of_leaves(f, flat, at, rebuild):
    """`f` as a function of the leaves at `at`, the others as in `flat`; it gives the results that can be checked."""

    def of_leaves(*moved):
        full = list(flat)
        for i, x in zip(at, moved, strict=True):
            full[i] = x
        return [t for t in _Outputs(f(*rebuild(full)), "gradcheck").leaves if _double(t)]

    return of_leaves


def _check_order(f, flat, rebuild, names, rng, options, order):
    """What is wrong with the derivatives of `f` by each floating leaf, as text; None if nothing is."""
    eps, atol, rtol, modes = options
    at = _double_leaves(flat)
    of_leaves = _of_leaves(f, flat, at, rebuild)
    point = [flat[i].detach() for i in at]
    if not of_leaves(*point):
        raise TypeError("gradcheck(): f returned no float64 or complex128 tensor")
    values, pullback = vjp(of_leaves, *point)
    weights = [_gauss(t, rng) for t in values]
    back = pullback(weights)
    for k, i in enumerate(at):
        direction = [
            _gauss(x, rng) if k == j else _C._full(list(x.shape), 0, x.dtype, "cpu") for j, x in enumerate(point)
        ]
        with no_grad():
            up, down = (of_leaves(*[x + s * d for x, d in zip(point, direction, strict=True)]) for s in (eps, -eps))
        numeric = _inner(zip(weights, [(a - b) / (2 * eps) for a, b in zip(up, down, strict=True)], strict=True))
        for mode in modes:
            if mode == "reverse":
                got = _inner([(back[k], direction[k])])
            else:
                got = _inner(zip(weights, jvp(of_leaves, tuple(point), tuple(direction))[1], strict=True))
            if not abs(got - numeric) <= atol + rtol * max(abs(got), abs(numeric)):
                return (
                    f"the {mode} derivative of order {order} by {names[i]} along a random direction is {got!r}, "
                    f"central differences give {numeric!r}"
                )
    return None


def gradcheck(
    f, inputs, *, order=1, modes=("reverse", "forward"), eps=1e-6, atol=1e-6, rtol=1e-5, raise_exception=True
):
    """Compares the derivatives of `f(*inputs)` with central differences along random directions; True if they agree.

    `inputs` is a tensor or a tuple of arguments: tensors of float64 or complex128, which are moved, and anything else,
    which stays. `order=2` compares the derivatives of the gradient too. Where they differ it raises AutogradError with
    both numbers, or gives False. The directions are the same in every call.
    """
    _check_callable(f, "gradcheck")
    inputs = (inputs,) if isinstance(inputs, _C.Tensor) else inputs
    if not isinstance(inputs, (tuple, list)):
        raise TypeError(f"gradcheck(): inputs must be a tensor or a tuple of arguments, not {_kind_of(inputs)}")
    if order not in (1, 2):
        raise ValueError(
            f"gradcheck(): order must be 1 or 2, not {order!r}; write gradcheck(hl.grad(f), ...) for higher"
        )
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    if not modes or any(m not in ("reverse", "forward") for m in modes):
        raise ValueError(f'gradcheck(): modes must be "reverse" and "forward", not {modes!r}')
    flat, names, rebuild = _tree.flatten(list(inputs), "input")
    for x, name in zip(flat, names, strict=True):
        if isinstance(x, _C.Tensor) and x.dtype.name in ("float16", "bfloat16", "float32", "complex64"):
            wide = "complex128" if x.dtype.name == "complex64" else "float64"
            raise TypeError(
                f"gradcheck(): {name} is {x.dtype.name}, too narrow for differences; write x.astype(hl.{wide})"
            )
    if not _double_leaves(flat):
        raise TypeError("gradcheck(): no input is a tensor of float64 or complex128")
    import random  # 5 ms that `import hyalite` must not wait for

    rng, options = random.Random(0), (eps, atol, rtol, modes)
    wrong = _check_order(f, flat, rebuild, names, rng, options, 1)
    if wrong is None and order == 2:
        wrong = _check_order(_gradient_along(f, flat, rebuild, rng), flat, rebuild, names, rng, options, 2)
    if wrong is not None and raise_exception:
        raise _C.AutogradError(f"gradcheck(): {wrong}")
    return wrong is None


def _gradient_along(f, flat, rebuild, rng):
    """The gradient of `f`'s result, weighted at random, by its floating arguments: itself a function of them."""
    at = _double_leaves(flat)
    weights = []

    def gradient(*args):
        leaves = _tree.flatten(list(args))[0]
        values, pullback = vjp(_of_leaves(f, leaves, at, rebuild), *[leaves[i] for i in at])
        if not weights:
            weights.extend(_gauss(t, rng) for t in values)
        return pullback(weights)

    return gradient
