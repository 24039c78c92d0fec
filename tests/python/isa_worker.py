"""A process with one instruction set that calls ops for the tests: the set is chosen once, when the library loads."""

import os
import pickle
import struct
import subprocess
import sys

import ml_dtypes  # noqa: F401 - its dtypes must be known before arrays of them arrive
import numpy as np

# Processors that qemu-x86_64 plays for a smoke test, and the set each of them has.
EMULATED = {"Nehalem": "x86-64-v2", "Haswell": "avx2"}


def sets():
    """The instruction sets that this build and this machine have, least first."""
    import hyalite as hl

    return hl.about()["instruction_sets"]


class Worker:
    """Calls ops in a process of the instruction set."""

    def __init__(self, isa):
        environment = {**os.environ, "HYALITE_ISA": isa}
        self.isa = isa
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def call(self, op, arrays, layout="contiguous", threads=1, **attributes):
        """Results of hl.<op> as NumPy arrays, the operands laid out in memory as named."""
        send(self.process.stdin, (op, arrays, layout, threads, attributes))
        answer = receive(self.process.stdout)
        if isinstance(answer, str):
            raise RuntimeError(f"{op} with {self.isa}: {answer}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def send(stream, value):
    data = pickle.dumps(value, protocol=5)
    stream.write(struct.pack("<q", len(data)))
    stream.write(data)
    stream.flush()


def receive(stream):
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError("the other process ended")
    return pickle.loads(stream.read(struct.unpack("<q", head)[0]))


def laid_out(array, layout):
    """A tensor of the array's elements; the way they lie in memory is the layout's."""
    import hyalite as hl

    if layout == "contiguous":
        return hl.asarray(array)
    if layout == "sliced":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), dtype=array.dtype)
        wide[..., 1::2] = array
        return hl.asarray(wide)[..., 1::2]
    if layout == "reversed":
        return hl.asarray(np.ascontiguousarray(np.flip(array)))[tuple(slice(None, None, -1) for _ in array.shape)]
    if layout == "fortran":
        return hl.permute_dims(hl.asarray(np.ascontiguousarray(array.T)), tuple(range(array.ndim))[::-1])
    if layout == "broadcast":  # the array repeats its first row
        return hl.broadcast_to(hl.asarray(np.ascontiguousarray(array[:1])), array.shape)
    raise ValueError(layout)


def tails(function, arrays):
    """Results for every length from 1 to 70, in three layouts, one behind the other."""
    parts = []
    for n in range(1, 71):
        for layout in ("contiguous", "sliced", "reversed"):
            result = function(*(laid_out(a[n % 5 : n % 5 + n], layout) for a in arrays))
            parts.append([np.atleast_1d(r.numpy()) for r in (result if isinstance(result, tuple) else (result,))])
    return [np.concatenate(column) for column in zip(*parts)]


def serve():
    import hyalite as hl
    from hyalite import _C

    # What a test prints must not enter the stream of answers.
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while True:
        try:
            op, arrays, layout, threads, attributes = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            _C._set_num_threads(threads)
            if layout == "tails":
                send(answers, tails(getattr(hl, op), arrays))
                continue
            result = getattr(hl, op)(*(laid_out(a, layout) for a in arrays), **attributes)
            parts = result if isinstance(result, tuple) else (result,)
            send(answers, [np.array(r.numpy()) for r in parts])
        except Exception as error:  # told to the test, which fails with it
            send(answers, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    serve()
