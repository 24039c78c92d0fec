"""Writes the stub `__init__.pyi` of the built package: its ops from the op list, the rest from the objects themselves.

usage: generate_stubs.py OUT, with the built package on the path. The build runs it; its output is not committed. What
has no types at run time is listed below: parameters by name (`function.name` goes before `name`), results by function.
"""

import inspect
import sys
import types
from pathlib import Path

import hyalite as hl
from hyalite import _C

HEADER = '''"""Hyalite: a tensor engine you can see through."""

# Made by tools/generate_stubs.py.
import builtins
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeAlias, TypeVar, final, overload

_Bool: TypeAlias = builtins.bool
_Ints: TypeAlias = int | Sequence[int]
_Record: TypeAlias = builtins.dict[str, Any]
_Tree = TypeVar("_Tree")
_Function = TypeVar("_Function", bound=Callable[..., Any])

class _SupportsArray(Protocol):
    @property
    def __array_interface__(self) -> Any: ...

class _SupportsDLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...
'''

# Names that a class or the module takes for something else stand behind an alias.
ALIASES = """
_Dtype: TypeAlias = dtype
_DtypeLike: TypeAlias = dtype | type[_Bool] | type[int] | type[float] | type[complex]
_Scalar: TypeAlias = _Bool | int | float | complex
_Operand: TypeAlias = Tensor | _Scalar | _SupportsArray
"""

FIELD_TYPES = {
    "float": "float", "number": "int | float | complex", "int": "int", "bool": "_Bool", "str": "str",
    "dtype": "_DtypeLike", "device": "str", "axis": "int", "ints": "_Ints", "axes": "_Ints",
}  # fmt: skip

PARAMETERS = {
    "args": "Any",
    "argnums": "_Ints",
    "allow_unused": "_Bool",
    "arrays": "Iterable[Tensor]",
    "arrays_and_dtypes": "Tensor | _Dtype | _Scalar | _SupportsArray",
    "atol": "float",
    "axis": "int",
    "broadcast_arrays.arrays": "Tensor",
    "bytes": "int",
    "check": "_Bool",
    "concat.axis": "int | None",
    "copy": "_Bool | None",
    "ctx": "Any",
    "astype.copy": "_Bool",
    "create_graph": "_Bool",
    "destination": "_Ints",
    "device": "str | None",
    "dtype": "_DtypeLike | None",
    "astype.dtype": "_DtypeLike",
    "isdtype.dtype": "_Dtype",
    "to.device": "str",
    "eval.tensors": "Any",
    "device.__init__.name": "str",
    "enabled": "_Bool",
    "endpoint": "_Bool",
    "expand_dims.axis": "_Ints",
    "eps": "float",
    "f": "Callable[..., Any]",
    "fill_value": "_Operand",
    "flip.axis": "_Ints | None",
    "from_": "Tensor | _Dtype",
    "function": "Callable[[], object]",
    "gradient": "Tensor | None",
    "source.gradient": "int | None",
    "gradients": "Tensor | Sequence[Tensor | None] | None",
    "Function.backward.gradients": "Any",
    "has_aux": "_Bool",
    "backward.inputs": "Tensor | Sequence[Tensor] | None",
    "gradcheck.inputs": "Any",
    "inputs": "Tensor | Sequence[Tensor]",
    "hook": "Callable[[Tensor], Tensor | None]",
    "k": "int",
    "kwargs": "Any",
    "kind": "str | _Dtype | tuple[str | _Dtype, ...]",
    "language": "str",
    "dynamic": "_Bool",
    "max_recompiles": "int",
    "tier": "int | None",
    "form": "str",
    "verify.f": "Callable[..., Any]",
    "__init__.differences": "list[_Record]",
    "__init__.compared": "int",
    "__init__.devices": "dict[str, _Record] | None",
    "__init__.record": "_Record",
    "__init__.name": "str",
    "compile.f": "Callable[..., Any] | None",
    "mode": "_Bool",
    "n": "int",
    "n_cols": "int | None",
    "n_rows": "int",
    "num": "int",
    "obj": "Any",
    "once": "_Bool",
    "modes": "str | Sequence[str]",
    "order": "int",
    "op": "str | Callable[..., Any]",
    "outputs": "Tensor | Sequence[Tensor]",
    "set_printoptions.precision": "int | None",
    "edgeitems": "int | None",
    "linewidth": "int | None",
    "suppress": "_Bool | None",
    "threshold": "int | float | None",
    "sizes": "_Ints",
    "_reshape_method.shape": "_Ints | None",
    "path": "str | os.PathLike[str]",
    "requires_grad": "_Bool",
    "primals": "Any",
    "raise_exception": "_Bool",
    "rtol": "float",
    "reshape.copy": "_Bool | None",
    "reshape.shape": "_Ints",
    "retain_graph": "_Bool",
    "roots": "Tensor | Sequence[Tensor]",
    "runs": "int | None",
    "shape": "_Ints",
    "broadcast_shapes.shapes": "Sequence[int]",
    "show": "_Bool",
    "source": "_Ints",
    "stop_gradient.x": "_Tree",
    "squeeze.axis": "_Ints | None",
    "start": "_Operand",
    "step": "_Operand",
    "stop": "_Operand",
    "arange.stop": "_Operand | None",
    "tangents": "Any",
    "stream": "object",
    "to": "_Dtype",
    "type": "Tensor | _Dtype",
    "to_device.device": "str",
    "width": "int | None",
    "x": "Tensor",
    "from_dlpack.x": "_SupportsDLPack",
}

RESULTS = {
    "compile": "CompiledFunction",
    "CompiledFunction.cache": "builtins.dict[str, Any]",
    "CompiledFunction.explain": "str",
    "CompiledFunction.plan": "Plan",
    "CompiledFunction.source": "str",
    "Plan.assert_kernels": "None",
    "verify": "Verification",
    "devices": "list[_Record]",
    "eval": "None",
    "synchronize": "None",
    "about": "_Record",
    "apply": "Any",
    "backward": "None",
    "broadcast_arrays": "tuple[Tensor, ...]",
    "broadcast_shapes": "tuple[int, ...]",
    "can_cast": "_Bool",
    "checkpoint": "Any",
    "data_ptr": "int",
    "dict": "_Record",
    "forward": "Any",
    "Function.backward": "Any",
    "get_num_threads": "int",
    "grad": "Callable[..., Any]",
    "gradcheck": "_Bool",
    "gradients": "tuple[Tensor, ...]",
    "hessian": "Callable[..., Any]",
    "jacobian": "Callable[..., Any]",
    "is_grad_enabled": "_Bool",
    "isdtype": "_Bool",
    "item": "Any",
    "json": "str",
    "memory_stats": "dict[str, int]",
    "numpy": "Any",
    "register_hook": "_RemovableHandle",
    "remove": "None",
    "requires_grad_": "Self",
    "retain_grad": "None",
    "reset_peak_memory": "None",
    "result_type": "_Dtype",
    "save": "os.PathLike[str]",
    "set_memory_limit": "None",
    "set_printoptions": "None",
    "source": "_Source",
    "text": "str",
    "tobytes": "bytes",
    "tolist": "Any",
    "trim_memory": "int",
    "unstack": "tuple[Tensor, ...]",
    "use_deterministic_algorithms": "None",
    "stop_gradient": "_Tree",
    "value_and_grad": "Callable[..., tuple[Any, Any]]",
    "jvp": "Any",
    "vjp": "Any",
}

PROPERTIES = {
    "device": "str",
    "dtype": "_Dtype",
    "expression": "str",
    "grad": "Tensor | None",
    "grad_fn": "_Node | None",
    "is_leaf": "_Bool",
    "itemsize": "int",
    "kernels": "int",
    "name": "str",
    "nbytes": "int",
    "ndim": "int",
    "next_functions": "tuple[tuple[_Node | None, int], ...]",
    "nodes": "int",
    "ops": "list[_Record]",
    "requires_grad": "_Bool",
    "saved": "Any",
    "shape": "tuple[int, ...]",
    "size": "int",
    "steps": "list[_Record]",
    "storage_offset": "int",
    "strides": "tuple[int, ...]",
    "total_ns": "float | None",
    "version": "int",
    "where": "str",
    "temporary_bytes": "int",
    "bytes_moved": "int",
    "bytes_least": "int",
    "calls": "int",
    "ready_seconds": "float",
}
WRITABLE = {"grad", "requires_grad"}

# Slots have no signatures of their own.
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "xor", "or")
SPECIAL = {
    "__new__": "(cls, obj: Any, dtype: _DtypeLike | None = None) -> Self",
    "__array__": "(self, dtype: Any = None, copy: _Bool | None = None) -> Any",
    "__bool__": "(self) -> _Bool",
    "__arrow_c_array__": "(self, requested_schema: object = None) -> tuple[Any, Any]",
    "__arrow_c_schema__": "(self) -> Any",
    "__complex__": "(self) -> complex",
    "__copy__": "(self) -> Self",
    "__deepcopy__": "(self, memo: Any, /) -> Self",
    "__divmod__": "(self, other: _Operand, /) -> tuple[Tensor, Tensor]",
    "__rdivmod__": "(self, other: _Operand, /) -> tuple[Tensor, Tensor]",
    "__dlpack__": "(self, *, stream: object = None, max_version: tuple[int, int] | None = None, "
    "dl_device: tuple[int, int] | None = None, copy: _Bool | None = None) -> Any",
    "__dlpack_device__": "(self) -> tuple[int, int]",
    "__float__": "(self) -> float",
    "__getitem__": "(self, key: Any, /) -> Tensor",
    "__setitem__": "(self, key: Any, value: _Operand | Sequence[Any], /) -> None",
    "__array_namespace__": "(self, /, *, api_version: str | None = None) -> Any",
    "__format__": "(self, spec: str, /) -> str",
    "__reversed__": "(self) -> Iterator[Tensor]",
    "__round__": "(self, ndigits: int | None = None, /) -> Tensor",
    "__hash__": "(self) -> int",
    "__index__": "(self) -> int",
    "__int__": "(self) -> int",
    "__iter__": "(self) -> Iterator[Tensor]",
    "__len__": "(self) -> int",
}
SPECIAL |= {f"__{name}__": "(self) -> Tensor" for name in ("abs", "invert", "neg", "pos")}
SPECIAL |= {f"__{name}__": "(self, other: _Operand, /) -> Tensor" for name in ("lt", "le", "gt", "ge")}
SPECIAL |= {
    f"__{name}__": "(self, other: _Operand, /) -> Tensor:  # type: ignore[override]  # pyright: ignore"
    for name in ("eq", "ne")
}
SPECIAL |= {f"__{r}{name}__": "(self, other: _Operand, /) -> Tensor" for name in BINARY for r in ("", "r")}
SPECIAL |= {f"__{r}pow__": "(self, other: _Operand, mod: None = None, /) -> Tensor" for r in ("", "r")}
SPECIAL |= {f"__i{name}__": "(self, other: _Operand, /) -> Self" for name in BINARY}
SPECIAL["__ipow__"] = "(self, other: _Operand, mod: None = None, /) -> Self"

# Protocols that no member shows: before Python 3.12 the buffer protocol has none, and a property is no method.
TENSOR_EXTRA = [
    "    __array_ufunc__: None",
    "    @property",
    "    def __array_interface__(self) -> _Record: ...",
    "    def __buffer__(self, flags: int, /) -> memoryview: ...",
]

EXPLAIN = '''
@overload
def explain(
    function: Callable[[], object], *, runs: int | None = None, once: _Bool = False, show: _Bool = True
) -> Trace:
    """{doc}"""
@overload
def explain(
    function: None = None, *, runs: int | None = None, once: _Bool = False, show: _Bool = True
) -> contextlib.AbstractContextManager[Trace]: ...
'''


def doc(thing, indent):
    """The first line of a docstring, as a docstring."""
    lines = (thing.__doc__ or "").strip().splitlines()
    text = lines[0].strip().replace("\\", "\\\\") if lines else ""
    return f'{" " * indent}"""{text}"""' if text else ""


def parameter_type(function, parameter):
    for key in (f"{function}.{parameter.name}", f"{function.split('.')[-1]}.{parameter.name}", parameter.name):
        if key in PARAMETERS:
            return PARAMETERS[key]
    raise SystemExit(f"generate_stubs.py: no type for {function}.{parameter.name}; add it to PARAMETERS")


def op_types(name):
    """Types of the parameters of an op, by name, from the op list."""
    facts = _C._op_facts(name)
    variadic = facts["arity"] < 0
    kinds = {p: "Sequence[Tensor]" if variadic else "_Operand" for p in facts["params"]}
    return kinds | {n: FIELD_TYPES[t] for n, t in zip(facts["fields"], facts["field_types"], strict=True)}


def op_result(name):
    outputs = _C._op_facts(name)["outputs"]
    return "Tensor" if outputs == 1 else f"tuple[{', '.join(['Tensor'] * outputs)}]"


def is_op(thing):
    return type(thing).__name__ == "OpFunction"


def declaration(name, thing, indent=0, method=False, owner=""):
    """A function or method as the stub declares it."""
    full = f"{owner}.{name}" if owner else name
    signature = inspect.signature(thing)
    typed = op_types(name) if is_op(thing) else {}
    result = op_result(name) if is_op(thing) else RESULTS.get(full, RESULTS.get(name, "Tensor"))
    parts, seen_star = [], False
    parameters = list(signature.parameters.values())
    for i, p in enumerate(parameters):
        if method and i == 0:
            text = p.name if is_op(thing) else "self"
        else:
            text = f"{p.name}: {typed[p.name] if p.name in typed else parameter_type(full, p)}"
            if p.default is not p.empty:
                none = p.default is None and "None" not in text and text.split(": ")[1] not in ("Any", "object")
                shown = "..." if isinstance(p.default, hl.dtype) else repr(p.default)
                text += f"{' | None' if none else ''} = {shown}"
        if p.kind is p.VAR_POSITIONAL:
            text, seen_star = "*" + text, True
        elif p.kind is p.VAR_KEYWORD:
            text = "**" + text
        elif p.kind is p.KEYWORD_ONLY and not seen_star:
            parts.append("*")
            seen_star = True
        parts.append(text)
        following = parameters[i + 1].kind if i + 1 < len(parameters) else None
        if p.kind is p.POSITIONAL_ONLY and following is not p.POSITIONAL_ONLY:
            parts.append("/")
    return define(name, parts, result, doc(thing, indent + 4), indent)


def define(name, parts, result, text, indent):
    pad = " " * indent
    line = f"{pad}def {name}({', '.join(parts)}) -> {result}:"
    if len(line) > 116:
        inner = "".join(f"{pad}    {part},\n" for part in parts)
        line = f"{pad}def {name}(\n{inner}{pad}) -> {result}:"
    return f"{line}\n{text}" if text else f"{line} ..."


def property_text(name, thing, writable):
    kind = PROPERTIES.get(name, "Tensor")
    text = doc(thing, 8)
    lines = ["    @property", f"    def {name}(self) -> {kind}:{'' if text else ' ...'}", text]
    if writable:
        lines += [f"    @{name}.setter", f"    def {name}(self, value: {kind}, /) -> None: ..."]
    return "\n".join(line for line in lines if line)


def special(name):
    text = SPECIAL[name]
    head, _, comment = text.partition(":  #")
    return f"    def {name}{head}: ...{'  #' + comment if comment else ''}"


def class_text(name, cls, bases="", more=()):
    """A class with its public members, those of private bases included, and the special ones that are listed."""
    members = {}
    for base in reversed(cls.__mro__):
        if base not in (object, str) and not issubclass(base, BaseException):
            members |= vars(base)
    final = ["@final"] if cls is hl.CompiledFunction else []
    lines = [*final, f"class {name}{bases}:", doc(cls, 4), *more]
    for key in sorted(members, key=lambda k: (not k.startswith("__"), k)):
        thing = members[key]
        if key == "__init__" and isinstance(thing, types.FunctionType) and cls is not hl.Trace:
            lines.append(declaration("__init__", thing, 4, True).replace("-> Tensor", "-> None"))
        elif key == "__enter__":
            lines.append("    def __enter__(self) -> Self: ...")
        elif key == "__exit__":
            lines.append("    def __exit__(self, *error: object) -> None: ...")
        elif key == "__call__" and cls is hl.CompiledFunction:
            lines.append("    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...")
        elif key == "__call__":
            lines.append("    def __call__(self, function: _Function, /) -> _Function: ...")
        elif cls is hl.Tensor and key in SPECIAL:
            lines.append(special(key))
        elif key.startswith("_"):
            continue
        elif isinstance(thing, (staticmethod, classmethod)):
            lines.append(f"    @{type(thing).__name__}")
            lines.append(declaration(key, thing.__func__, 4, isinstance(thing, classmethod), name))
            lines[-1] = lines[-1].replace("(self", "(cls")
        elif isinstance(thing, (property, types.GetSetDescriptorType)):
            lines.append(property_text(key, thing, cls is hl.Tensor and key in WRITABLE))
        elif hasattr(thing, "__nb_signature__"):
            signature = thing.__nb_signature__[0][0]
            lines.append(f"    {signature}: ..." if "->" in signature else f"    {signature} -> None: ...")
        elif callable(thing):
            lines.append(declaration(key, thing, 4, True, name if cls in (hl.CompiledFunction, hl.Plan) else ""))
    return "\n".join(line for line in lines if line)


def attributes_of(example):
    """Public attributes that an object got in `__init__`."""
    kinds = {int: "int", float: "float", str: "str", hl.dtype: "_Dtype"}
    return [f"    {n}: {kinds[type(v)]}" for n, v in vars(example).items() if not n.startswith("_")]


def error_text(name, cls):
    bases = [
        b.__name__ if b.__module__ in ("builtins", "hyalite") else f"{b.__module__}.{b.__name__}" for b in cls.__bases__
    ]
    more = ["    def __getattr__(self, name: str, /) -> Any: ..."] if name == "HyaliteError" else []
    return class_text(name, cls, f"({', '.join(bases)})", more)


def public_class(name, cls):
    if issubclass(cls, BaseException):
        return error_text(name, cls)
    if cls is hl.Tensor:
        return class_text(name, cls, more=TENSOR_EXTRA)
    if cls is hl.dtype:
        members = [doc(cls, 4), "    name: str", "    itemsize: int"]
        return "\n".join(["class dtype:", *members])
    if cls in (hl.finfo, hl.iinfo):
        return class_text(name, cls, more=attributes_of(cls(hl.float32 if cls is hl.finfo else hl.int32)))
    return class_text(name, cls)


def constant(name, value):
    kind = {hl.dtype: "dtype", float: "float", str: "str", types.NoneType: "None"}[type(value)]
    return f"{name}: {kind}"


def public_names():
    return [n for n in dir(hl) if not n.startswith("_") and not isinstance(getattr(hl, n), types.ModuleType)]


def stub():
    """The text of `hyalite/__init__.pyi`."""
    classes, constants, functions = [], [], []
    for name in public_names():
        thing = getattr(hl, name)
        if name == "explain":
            functions.append(EXPLAIN.strip().format(doc=doc(thing, 0).strip('"')))
        elif isinstance(thing, type):
            classes.append((not issubclass(thing, BaseException), len(thing.__mro__), name, thing))
        elif callable(thing):
            functions.append(declaration(name, thing))
        else:
            constants.append(constant(name, thing))
    classes.sort(key=lambda c: c[:3])
    source = class_text("_Source", hl.source("add").__class__, "(str)", ["    file: str", "    line: int"])
    private = [class_text("_Node", _C.Node), class_text("_RemovableHandle", _C.RemovableHandle), source]
    constants += [constant(n, getattr(hl, n)) for n in ("__array_api_version__", "__version__")]
    constants.append("__all__ = [\n" + "".join(f'    "{n}",\n' for n in hl.__all__) + "]")
    functions.append("def __array_namespace_info__() -> Any: ...")
    blocks = [*(public_class(name, cls) for *_, name, cls in classes), *private]
    return "\n".join([HEADER, "\n\n".join(blocks), ALIASES, "\n".join(constants), "", "\n".join(functions), ""])


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: generate_stubs.py OUT")
    Path(sys.argv[1]).write_text(stub(), encoding="utf-8")


if __name__ == "__main__":
    main()
