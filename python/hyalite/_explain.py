"""`explain`: shows every step that a call really took, with its reason and its time."""

import ast
import functools
import html
import json
import linecache
import os
import pathlib
import shutil
import sys
import types

from . import _C
from ._repeatable import reason_to_call_once

__all__ = ["Trace", "explain"]

_PAGE_HEIGHT = 900  # pixels, of the frame in a notebook


class Trace:
    """What a call did, step by step; `str` gives the terminal's text."""

    def __init__(self, native=None):
        self._native = native
        self._shown_in = None  # the notebook's cell that has the page already

    def _require(self):
        if self._native is None:
            raise ValueError("explain(): the trace is complete only when the with-block has ended")
        return self._native

    def text(self, width=None):
        """The text for a terminal of `width` columns, by default this one's."""
        return self._require().text(width or shutil.get_terminal_size((120, 24)).columns, False)

    def json(self):
        """The record as JSON text."""
        return self._require().format("json")

    def dict(self):
        """The record as dicts and lists."""
        return json.loads(self.json())

    def save(self, path):
        """Writes the format that the path's ending names, and returns the path.

        .html, .svg, .json, .mmd (Mermaid), .txt, or .trace.json for chrome://tracing and Perfetto.
        """
        path = pathlib.Path(path)
        endings = path.name.split(".")[1:]
        kind = "trace.json" if endings[-2:] == ["trace", "json"] else endings[-1] if endings else ""
        path.write_text(self._require().format(kind), encoding="utf-8")
        return path

    @property
    def steps(self):
        """The steps in order, as dicts."""
        return self.dict()["steps"]

    @property
    def ops(self):
        """The calls of ops in order, as dicts."""
        return self.dict()["ops"]

    @property
    def expression(self):
        """What was explained, as the source says it."""
        return self.dict()["expression"]

    @property
    def where(self):
        """File and line of it; empty where there is no source."""
        return self.dict().get("where", "")

    @property
    def total_ns(self):
        """Nanoseconds from call to return, the median of several runs; None where the function was run once."""
        return self.dict().get("total_ns")

    def __str__(self):
        return self.text()

    def __repr__(self):
        if self._native is None:
            return "<hyalite.Trace, recording>"
        record = self.dict()
        return f"<hyalite.Trace of {record['expression']!r}, {len(record['steps'])} steps>"

    def _repr_html_(self):
        shell = _notebook()
        if shell is not None and self._shown_in == shell.execution_count:
            return None
        return self._frame()

    def _frame(self):
        page = html.escape(self._require().format("html"))
        return f'<iframe srcdoc="{page}" style="width:100%;height:{_PAGE_HEIGHT}px;border:0"></iframe>'

    def _print(self):
        shell = _notebook()
        if shell is not None:
            from IPython.display import HTML, display

            display(HTML(self._frame()))
            self._shown_in = shell.execution_count
            return
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            print(self.text(), end="")
            return
        console = Console()
        text = Text.from_ansi(self._native.text(console.width, True))
        console.print(text, soft_wrap=True, end="")


def _notebook():
    """The shell of a notebook that this runs in, or None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if type(shell).__name__ == "ZMQInteractiveShell" else None


class _Recording:
    """The with-form: records the block, and at its end fills the trace and prints it."""

    def __init__(self, frame, show):
        self._expression, self._where = _describe_block(frame)
        self._show = show
        self._trace = Trace()

    def __enter__(self):
        self._scope = _C.RecordingScope(self._expression, self._where)
        return self._trace

    def __exit__(self, kind, error, traceback):
        self._trace._native = self._scope.end()
        if self._show and kind is None:
            self._trace._print()
        return False


def explain(function=None, *, runs=None, once=False, show=True):
    """Calls `function` and shows the steps it took: prints them and returns the Trace.

    The function is called once, unless it is one lambda of operators, attribute reads and calls of Hyalite's functions
    and methods on captured tensors and numbers, such as `lambda: a + b`, which changes nothing when it is called again.
    Then one run gives the decisions, and each of several more times a single step, since steps are shorter than a
    reading of the clock; the median counts. `runs` is the most timings of a step (25 by default), `once=True` forbids
    them. The trace says how often the function was called, and why only once. `show=False` prints nothing.

    Without a function it is a context manager: `with hl.explain() as trace:` records the block's only run.
    Raises TypeError for what is no function, and for a coroutine or generator function, whose call runs nothing.
    """
    if function is None:
        return _Recording(sys._getframe(1), show)
    _check_function(function)
    rounds = 25 if runs is None else _C._integer(runs, "explain", "runs")
    expression, where = _describe_function(function)
    why_once = "as asked" if once else reason_to_call_once(function)
    call = function if why_once is None else functools.partial(_call_once, function)
    trace = Trace(_C.explain_run(call, expression, where, why_once is None, why_once or "", rounds))
    if show:
        trace._print()
    return trace


def _check_function(function):
    if not callable(function):
        raise TypeError(
            f"explain(): {type(function).__name__} is no function, its steps have passed; write explain(lambda: ...)"
        )
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", type(inner).__name__)
    if not hasattr(inner, "__code__") and not hasattr(inner, "__func__"):
        inner = type(inner).__call__
    flags = getattr(getattr(getattr(inner, "__func__", inner), "__code__", None), "co_flags", 0)
    for flag, kind, write in (
        (0x80, "coroutine", f"explain(lambda: asyncio.run({name}()))"),  # inspect's CO_COROUTINE and its like
        (0x200, "asynchronous generator", "a coroutine function that walks it, and explain(lambda: asyncio.run(f()))"),
        (0x20, "generator", f"explain(lambda: list({name}()))"),
    ):
        if flags & flag:
            raise TypeError(f"explain(): {name} is a {kind} function, and calling it runs nothing; write {write}")


def _call_once(function):
    result = function()
    if type(result) is types.CoroutineType:
        result.close()
        raise TypeError(
            "explain(): the function gave a coroutine, and nobody awaits it; write explain(lambda: asyncio.run(f()))"
        )
    return result


def _place(file, line):
    """`file:line`, the file as seen from the working directory where it lies below it."""
    try:
        relative = os.path.relpath(file)
        file = relative if os.path.exists(file) and not relative.startswith("..") else file
    except ValueError:  # another drive
        pass
    return f"{file}:{line}"


def _parse(file, module_globals=None):
    """The file's text and syntax tree, or None where there is no source, as at the interpreter's prompt."""
    text = "".join(linecache.getlines(file, module_globals))
    try:
        return (text, ast.parse(text)) if text else None
    except SyntaxError:
        return None


def _one_line(text):
    return " ".join(text.split())


def _describe_function(function):
    """The expression that the function evaluates, and where it stands."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    if code is None:
        return f"{name}()", ""
    where = _place(code.co_filename, code.co_firstlineno)
    parsed = _parse(code.co_filename, getattr(function, "__globals__", None))
    if parsed is None:
        return ("" if name == "<lambda>" else f"{name}()"), where
    text, tree = parsed
    if name != "<lambda>":
        return f"{name}()", where
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    columns = {(line, column) for line, _, column, _ in code.co_positions() if line is not None and column is not None}
    same = [node for node in found if any(_within(node.body, position) for position in columns)]
    # Nested lambdas: the innermost whose body holds the code's first position.
    for node in sorted(same or found, key=lambda n: (n.body.lineno, n.body.col_offset), reverse=True):
        if all(_within(node.body, position) for position in columns - {(code.co_firstlineno, 0)}):
            return _one_line(ast.get_source_segment(text, node.body) or ""), _place(code.co_filename, node.body.lineno)
    return "", where


def _within(node, position):
    return (node.lineno, node.col_offset) <= position < (node.end_lineno, node.end_col_offset)


def _describe_block(frame):
    """The first statement of the with-block that is about to begin, and where it stands."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    parsed = _parse(file, frame.f_globals)
    if parsed is not None:
        text, tree = parsed
        for node in ast.walk(tree):
            if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno <= line < node.body[0].lineno:
                more = " ..." if len(node.body) > 1 else ""
                first = (ast.get_source_segment(text, node.body[0]) or "").split("\n")[0]
                return _one_line(first) + more, _place(file, node.body[0].lineno)
    return "", _place(file, line)
