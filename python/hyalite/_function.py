"""Functions with a gradient of their own, and functions that are computed again for it."""

from . import _C, _tree
from ._autograd import _DIFFERENTIABLE, _check_callable, _kind_of
from ._modes import enable_grad, no_grad

__all__ = ["Function", "checkpoint"]


class _Saved:
    """A tensor that a custom backward will read: the memory, its version, and where its history begins."""

    def __init__(self, tensor, name, operand=-1, output=-1):
        self.memory, self.version = tensor.detach(), tensor.version
        self.name, self.operand, self.output = name, operand, output

    def unpack(self, function, node):
        if self.memory.version != self.version:
            error = _C.VersionMismatch(
                f"{function}.backward(): saved {self.name} at version {self.version}, but it was written in place "
                f"since and is at version {self.memory.version}; write x = x + y in place of x += y, or save x.copy()"
            )
            error.saved_version, error.current_version = self.version, self.memory.version
            raise error
        if self.operand < 0 and self.output < 0:
            return self.memory
        return _C._with_history(node, self.memory, self.operand, self.output)


class FunctionContext:
    """What `forward` leaves for `backward`: saved tensors, and any attributes of your own."""

    def __init__(self, name, needs_input_grad):
        self._name, self._node = name, None
        self._to_save, self._saved = (), ()
        self._constant, self._materialize = (), True
        self.needs_input_grad = needs_input_grad

    def save_for_backward(self, *tensors):
        """Keeps tensors, or None, for `backward`: inputs, outputs or others. Writing one in place then raises there."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, _C.Tensor):
                raise TypeError(
                    f"{self._name}.forward(): save_for_backward() takes tensors, and number {i} is {_kind_of(t)}; "
                    "write ctx.name = value for others"
                )
        self._to_save = tensors

    def mark_non_differentiable(self, *tensors):
        """Outputs that have no gradient."""
        self._constant = tensors

    def set_materialize_grads(self, value):
        """Whether `backward` gets zeros (the default) or None for an output that nobody's gradient came through."""
        self._materialize = bool(value)

    @property
    def saved_tensors(self):
        """What was saved, a tuple. Raises VersionMismatch where it was written in place since."""
        if self._saved is None:
            raise _C.AutogradError(
                f"{self._name} has been walked before and its saved tensors are gone; call the first "
                "backward(retain_graph=True)"
            )
        if self._node is None:
            return self._to_save
        return tuple(s if s is None else s.unpack(self._name, self._node) for s in self._saved)

    def _keep(self, inputs, outputs):
        """After forward: what was saved, without the histories that the node itself leads to."""
        saved = []
        for t in self._to_save:
            operand = next((i for i, x in enumerate(inputs) if x is t), -1)
            output = next((i for i, x in enumerate(outputs) if x is t), -1) if operand < 0 else -1
            name = f"input {operand}" if operand >= 0 else f"output {output}" if output >= 0 else "a tensor"
            saved.append(None if t is None else _Saved(t, name, operand, output))
        self._saved, self._to_save = saved, ()

    def _release(self):
        self._saved = None


class Function:
    """Base of functions with a gradient of their own; call `Class.apply(*args)`.

    `forward(ctx, *args)` computes the result, one tensor or a tuple of them, with nothing recorded. `backward(ctx,
    *gradients)` takes the gradient of each output and returns one for each argument, None for what has none; made of
    Hyalite's functions it can be differentiated again, and forward mode follows from it. Both are static methods.
    `ctx.save_for_backward(...)`, `ctx.saved_tensors`, `ctx.needs_input_grad`, `ctx.mark_non_differentiable(...)` and
    attributes of your own pass things from one to the other.
    """

    @staticmethod
    def forward(ctx, *args, **kwargs):
        """Computes the result. Yours to write."""
        raise NotImplementedError("Function.forward(): write a static method forward(ctx, *args)")

    @staticmethod
    def backward(ctx, *gradients, **kwargs):
        """Gives a gradient for each argument of forward. Yours to write."""
        raise NotImplementedError("Function.backward(): write a static method backward(ctx, *gradients)")

    @classmethod
    def apply(cls, *args):
        """Computes `forward(ctx, *args)` and records that `backward` is its gradient."""
        name = cls.__name__
        for method in ("forward", "backward"):
            if not isinstance(_found(cls, method), staticmethod):
                raise TypeError(f"{name}.{method} must be a static method; write @staticmethod above it")
        recording = _C.is_grad_enabled()
        inputs = [x if isinstance(x, _C.Tensor) else None for x in args]
        needs = tuple(recording and x is not None and x.requires_grad for x in inputs)
        ctx = FunctionContext(name, needs)
        versions = [None if x is None else x.version for x in inputs]
        with no_grad():
            result = cls.forward(ctx, *args)
        several = isinstance(result, tuple)
        outputs = list(result) if several else [result]
        for i, t in enumerate(outputs):
            if not isinstance(t, _C.Tensor):
                what = f"{_kind_of(t)} as result {i}" if several else _kind_of(t)
                raise TypeError(f"{name}.forward() returned {what}; return a tensor or a tuple of tensors")
        for i, (x, version) in enumerate(zip(inputs, versions, strict=True)):
            if needs[i] and x.version != version:
                raise _C.AutogradError(f"{name}.forward() wrote its argument {i} in place; write to x.copy()")
        if not any(needs):
            return result
        fresh = [_alone(t, inputs) for t in outputs]
        differentiable = [t.dtype.name in _DIFFERENTIABLE and not any(t is c for c in ctx._constant) for t in outputs]
        if any(differentiable):
            ctx._keep(inputs, outputs)
            _record(cls, ctx, inputs, fresh, differentiable)
        return tuple(fresh) if several else fresh[0]


def _found(cls, name):
    return next(vars(base)[name] for base in cls.__mro__ if name in vars(base))


def _alone(t, inputs):
    """An output as a tensor of its own, which shares no memory with an input: writing one must not change the other."""
    if any(x is not None and _C._same_storage(x, t) for x in inputs):
        return t.detach().copy()
    return t.detach()


def _record(cls, ctx, inputs, outputs, differentiable):
    shapes = [(t.shape, t.dtype, t.device) for t in outputs]
    forms = [None if x is None else (x.shape, x.dtype) for x in inputs]

    def backward(node, gradients, wanted, create_graph):
        if ctx._materialize:
            gradients = tuple(
                _C._full(list(s), 0, d, device) if g is None else g
                for g, (s, d, device) in zip(gradients, shapes, strict=True)
            )
        view = _view(ctx, node)
        result = cls.backward(view, *gradients)
        return _checked(cls.__name__, result, forms, wanted)

    targets = [t if d else None for t, d in zip(outputs, differentiable, strict=True)]
    _C._function_node(cls.__name__, inputs, targets, bool(ctx._saved), backward, ctx._release)


def _view(ctx, node):
    """The context as one walk sees it: the node is not kept, for it keeps the context."""
    view = FunctionContext.__new__(type(ctx))
    view.__dict__ = ctx.__dict__ | {"_node": node}
    return view


def _checked(name, result, forms, wanted):
    """The gradients that a custom backward returned, one an argument, each of its argument's shape and dtype."""
    given = list(result) if isinstance(result, (tuple, list)) else [result]
    given += [None] * (len(forms) - len(given)) if len(forms) > len(given) == 1 and given[0] is None else []
    if len(given) > len(forms) and all(g is None for g in given[len(forms) :]):
        given = given[: len(forms)]
    if len(given) != len(forms):
        raise TypeError(
            f"{name}.backward() returned {len(given)} gradient{'' if len(given) == 1 else 's'} for {len(forms)} "
            f"argument{'' if len(forms) == 1 else 's'} of forward; return one for each, None for what has none"
        )
    for i, (g, form, want) in enumerate(zip(given, forms, wanted, strict=True)):
        if g is None or not want:
            continue
        if not isinstance(g, _C.Tensor):
            raise TypeError(f"{name}.backward() returned {_kind_of(g)} for argument {i}; return a tensor or None")
        shape, dtype = form
        if g.shape != shape:
            raise _C.ShapeMismatch(
                f"{name}.backward() returned shape {g.shape} for argument {i}, which has {shape}; sum the gradient "
                "over the axes along which the argument was broadcast"
            )
        if g.dtype is not dtype:
            raise _C.DtypeMismatch(
                f"{name}.backward() returned {g.dtype.name} for argument {i}, which is {dtype.name}; "
                f"write g.astype(hl.{dtype.name})"
            )
    return [g if want else None for g, want in zip(given, wanted, strict=True)]


# ---- checkpoint -------------------------------------------------------------------------------------------------


class _Kept:
    """The arguments of a checkpointed call, without the histories that its node itself leads to."""

    def __init__(self, args, kwargs):
        self.leaves, self.names, self.rebuild = _tree.flatten([*args, kwargs], "argument")
        found = [(i, x) for i, x in enumerate(self.leaves) if isinstance(x, _C.Tensor)]
        self.edges = _C._edges_of([x for _, x in found])
        self.versions = [x.version for _, x in found]
        self.tensors = [(i, x, x.detach()) for i, x in found]

    def forget_histories(self):
        self.tensors = [(i, memory) for i, _, memory in self.tensors]
        for i, memory in self.tensors:
            self.leaves[i] = memory

    def check(self, when):
        for (i, *_, memory), version in zip(self.tensors, self.versions, strict=True):
            if memory.version != version:
                raise _version_mismatch(f"checkpoint(): {self.names[i]}", version, memory.version, when)

    def unpack(self):
        leaves = list(self.leaves)
        for k, (i, memory) in enumerate(self.tensors):
            leaves[i] = _C._with_edge(self.edges, k, memory)
        return self.rebuild(leaves)


def _version_mismatch(what, saved, current, when):
    error = _C.VersionMismatch(
        f"{what} was at version {saved} when the function ran, but {when} and is at version {current}; "
        "write x = x + y in place of x += y, or give x.copy()"
    )
    error.saved_version, error.current_version = saved, current
    return error


def checkpoint(f, *args, **kwargs):
    """`f(*args, **kwargs)`, whose inner values are not kept for backward: it is called again there.

    Gradients of every order reach the arguments and what `f` closes over, in reverse and forward mode; autocast is as
    it was at the first call. `f` must do the same again: raises AutogradError where it leads to other tensors, and
    VersionMismatch where an argument or a parameter was written in place since.
    """
    _check_callable(f, "checkpoint")
    if not _C.is_grad_enabled():
        return f(*args, **kwargs)
    modes = _C._get_autocast()
    kept = _Kept(args, kwargs)
    since = _C._next_sequence()
    leaves, names, rebuild = _tree.flatten(f(*args, **kwargs))
    kept.check("f wrote it in place")
    made = [(i, x) for i, x in enumerate(leaves) if isinstance(x, _C.Tensor) and x.requires_grad]
    frontier = _C._frontier([x for _, x in made], since)
    if _C._edge_count(frontier) == 0:
        return rebuild(leaves)
    versions = _C._leaf_versions(frontier)
    given = [x for _, x, _ in kept.tensors]
    fresh = [_alone(x, given) for _, x in made]
    for (i, _), x in zip(made, fresh, strict=True):
        leaves[i] = x
    places = [i for i, _ in made]
    del made, given
    kept.forget_histories()
    state = [kept]

    def backward(node, gradients, wanted, create_graph):
        if not state:
            raise _C.AutogradError(
                "checkpoint() has been walked before and what it needs is gone; call the first "
                "backward(retain_graph=True)"
            )
        state[0].check("it was written in place since")
        for k, (saved, current) in enumerate(zip(versions, _C._leaf_versions(frontier), strict=True)):
            if saved != current:
                raise _version_mismatch(
                    f"checkpoint(): parameter {k} of the function", saved, current, "it was written in place since"
                )
        before = _C._set_autocast(*modes)
        try:
            with enable_grad():
                *args, kwargs = state[0].unpack()
                again, other_names, _ = _tree.flatten(f(*args, **kwargs))
        finally:
            _C._set_autocast(*before)
        roots = [again[i] if i < len(again) else None for i in places]
        if other_names != names or not all(isinstance(x, _C.Tensor) for x in roots):
            raise _C.AutogradError("checkpoint(): f returned something else when it was called again")
        return _C._gradients_at(frontier, roots, list(gradients), create_graph)

    _C._record_checkpoint(frontier, fresh, backward, state.clear)
    return rebuild(leaves)
