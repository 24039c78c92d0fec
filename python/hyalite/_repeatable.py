"""Whether a function may be called again for its times: the proof that it is one expression without effects."""

import builtins
import dis
import sys
import types

from . import _C, _creation, _dtypes, _functions

_OP, _DTYPE = type(_C.add), type(_dtypes._by_name["float32"])
# Beside the ops.
_METHODS = {"astype", "contiguous", "copy", "data_ptr", "detach", "item", "numpy", "reshape", "to_device", "tolist"}
_CHANGE_STATE = {"set_printoptions"}
_NUMBERS = (int, float, complex, bool, type(None), type(Ellipsis), str)
_CALL_BIT = sys.version_info >= (3, 12)
_NULL = object()  # what the interpreter pushes beside a callable


class _Unproven(Exception):
    """Says what could not be shown to be without effects."""


class _Result:
    """The unknown value of an operation without effects."""


class _Pure:
    """A callable without effects."""


_RESULT, _PURE = _Result(), _Pure()


def reason_to_call_once(function):
    """None where the code of `function` proves that calling it again changes nothing, else what stands against it.

    It is proven for one lambda of operators, attribute reads and calls of Hyalite's functions and methods without
    effects, on captured tensors and numbers.
    """
    if type(function) is not types.FunctionType or function.__name__ != "<lambda>":
        return "it is no lambda"
    code = function.__code__
    if code.co_flags & (0x20 | 0x80 | 0x100 | 0x200) or code.co_exceptiontable:  # generators, coroutines, handlers
        return "its code is more than one expression"
    try:
        _Proof(function).walk()
    except _Unproven as what:
        return str(what)
    return None


def _is_data(value):
    if isinstance(value, _Result):
        return True
    if type(value) in (tuple, list):
        return all(_is_data(item) for item in value)
    if type(value) is slice:
        return all(_is_data(part) for part in (value.start, value.stop, value.step))
    return type(value) in _NUMBERS or type(value) is _C.Tensor or type(value) is _DTYPE


def _is_pure(value):
    if type(value) is _OP or any(value is known for known in (abs, divmod, pow)):
        return True
    if type(value) is types.BuiltinFunctionType:
        return value.__module__ == "hyalite"
    own = type(value) is types.FunctionType and value.__module__ in (_functions.__name__, _creation.__name__)
    return own and value.__name__ not in _CHANGE_STATE and not value.__name__.startswith("_")


class _Proof:
    """Runs the code on what is known of the values: a captured object, the result of something, or a pure callable."""

    def __init__(self, function):
        self.function = function
        self.code = function.__code__
        self.stack = []

    def walk(self):
        for step in dis.get_instructions(self.code):
            name = step.opname
            if name in ("RETURN_VALUE", "RETURN_CONST"):
                return
            handler = getattr(self, f"_{name.lower()}", None)
            if handler is None and name.startswith("LOAD_FAST") and "CLEAR" not in name:
                handler = self._load_fast
            if handler is None:
                raise _Unproven(f"its code is more than one expression ({name})")
            handler(step)

    def push(self, value, name):
        """What was captured under a name."""
        if isinstance(value, types.ModuleType) or _is_data(value):
            self.stack.append(value)
        elif _is_pure(value):
            self.stack.append(_PURE)
        else:
            raise _Unproven(f"it uses {name}" if callable(value) else f"it captures {name}, a {type(value).__name__}")

    def pop(self, count=1):
        """The last values, which must be tensors, numbers, or tuples and slices of them."""
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        for value in values:
            if not _is_data(value):
                raise _Unproven("its code is more than one expression")
        return values

    # What is loaded.

    def _ignored(self, step):
        pass

    _resume = _copy_free_vars = _nop = _cache = _precall = _kw_names = _extended_arg = _not_taken = _ignored

    def _push_null(self, step):
        self.stack.append(_NULL)

    def _load_const(self, step):
        if not _is_data(step.argval):
            raise _Unproven("its code is more than one expression")
        self.stack.append(step.argval)

    _load_small_int = _load_const

    def _load_fast(self, step):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        count = self.code.co_argcount
        defaults = self.function.__defaults__ or ()
        known = dict(zip(self.code.co_varnames[count - len(defaults) : count], defaults, strict=True))
        known.update(self.function.__kwdefaults__ or {})
        for name in names:
            if name not in known:
                raise _Unproven("its code is more than one expression")
            self.push(known[name], name)

    def _load_deref(self, step):
        cell = self.function.__closure__[self.code.co_freevars.index(step.argval)]
        try:
            value = cell.cell_contents
        except ValueError:
            raise _Unproven(f"{step.argval} has no value") from None
        self.push(value, step.argval)

    def _load_global(self, step):
        names = self.function.__globals__
        found = names if step.argval in names else vars(builtins)
        if step.argval not in found:
            raise _Unproven(f"{step.argval} has no value")
        if step.arg & 1:
            self.stack.append(_NULL)
        self.push(found[step.argval], step.argval)

    def _load_attr(self, step, method=False):
        owner = self.stack.pop()
        name = step.argval
        # In Python 3.11 the argument is a bare index; since then its last bit says that a call follows.
        if method or (_CALL_BIT and step.arg & 1):
            self.stack.append(_NULL)
        if isinstance(owner, types.ModuleType):
            if not owner.__name__.startswith("hyalite") or name not in vars(owner):
                raise _Unproven(f"it uses {owner.__name__}.{name}")
            self.push(vars(owner)[name], name)
        else:
            self.stack.append(self._read(owner, name))

    def _load_method(self, step):
        self._load_attr(step, method=True)

    def _read(self, owner, name):
        """An attribute of a tensor, or of what may be one."""
        if not (isinstance(owner, _Result) or type(owner) is _C.Tensor):
            raise _Unproven(f"it reads {name} of a {type(owner).__name__}")
        if name == "grad":
            if isinstance(owner, _Result) or not _is_data(owner.grad):
                raise _Unproven("it reads grad")
            return owner.grad
        found = next((vars(c)[name] for c in _C.Tensor.__mro__ if name in vars(c)), None)
        own = type(found) is types.FunctionType and found.__module__ == _functions.__name__
        if name in _METHODS or type(found) is _OP or own:
            return _PURE
        if type(found) is types.GetSetDescriptorType:
            return _RESULT
        raise _Unproven(f"it calls {name}" if found is not None else f"it reads {name}")

    # What is computed.

    def _compute(self, count):
        self.pop(count)
        self.stack.append(_RESULT)

    def _binary_op(self, step):
        if step.argrepr.endswith("="):
            raise _Unproven("it writes in place")
        self._compute(2)

    def _compare_op(self, step):
        self._compute(2)

    _is_op = _binary_subscr = _compare_op

    def _binary_slice(self, step):
        self._compute(3)

    def _unary_negative(self, step):
        self._compute(1)

    _unary_positive = _unary_invert = _unary_not = _to_bool = _unary_negative

    def _call_intrinsic_1(self, step):
        if step.argrepr != "INTRINSIC_UNARY_POSITIVE":
            raise _Unproven("its code is more than one expression")
        self._compute(1)

    def _build_tuple(self, step):
        self.stack.append(tuple(self.pop(step.arg)))

    def _build_list(self, step):
        self.stack.append(list(self.pop(step.arg)))

    def _list_extend(self, step):
        (more,) = self.pop()
        if type(more) not in (tuple, list) or type(self.stack[-step.arg]) is not list:
            raise _Unproven("its code is more than one expression")
        self.stack[-step.arg] = [*self.stack[-step.arg], *more]

    def _build_slice(self, step):
        self._compute(step.arg)

    def _call(self, step):
        self.pop(step.arg)
        called = [value for value in (self.stack.pop(), self.stack.pop()) if value is not _NULL]
        if called != [_PURE]:
            raise _Unproven("it calls what is no function of Hyalite")
        self.stack.append(_RESULT)

    def _call_kw(self, step):
        self.pop()  # the names
        self._call(step)
