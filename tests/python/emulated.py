"""Calls every op once for each dtype and pickles what came out; test_machines.py runs it elsewhere."""

import pickle
import sys

import numpy as np
from op_oracle import ELEMENTWISE, OTHERS, REDUCTIONS, accepted, calls, moderate, operands
from test_casts import numpy_dtype

import hyalite as hl

# More than one vector of any set, and a tail.
LENGTH = 77


def plain(result):
    """A result as names, shapes and bytes, which pickle without ml_dtypes."""
    parts = result if isinstance(result, tuple) else (result,)
    return [(p.dtype.name, p.shape, np.ascontiguousarray(p.numpy()).tobytes()) for p in parts]


def results():
    """By op, dtype and number of the call."""
    found = {}
    for op in ELEMENTWISE:
        for name in accepted(op):
            arrays = operands(op, name, LENGTH)
            found[op, name, 0] = plain(getattr(hl, op)(*map(hl.asarray, arrays)))
    for op in REDUCTIONS + OTHERS:
        for name in accepted(op):
            for i, (shapes, call, _) in enumerate(calls(op)):
                rng = np.random.default_rng([i, len(op), len(name)])
                arrays = [moderate(name, int(np.prod(s)), rng).reshape(s) for s in shapes]
                if op == "matmul":  # products of small whole numbers: exact in whatever order OpenBLAS adds
                    arrays = [np.round(a.astype(np.complex128).real / 4).astype(numpy_dtype(name)) for a in arrays]
                found[op, name, i] = plain(call(*map(hl.asarray, arrays)))
    return found


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        pickle.dump((hl.about(), results()), file)
