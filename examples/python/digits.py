"""Trains a two-layer network on real handwritten digits with plain tensors, then shows every step of one `a + b`.

Run it with `./dev demo`. The digits are scikit-learn's bundled set: 1797 grey images of 8 by 8 pixels, no download.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits

import hyalite as hl

HIDDEN, BATCH, RATE, MOMENTUM = 64, 32, 0.1, 0.9


def load(rng):
    """Pixels in [0, 1] and labels 0 to 9, shuffled: one fifth for the test, the rest for training."""
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    pixels = hl.asarray((digits.data[order] / 16).astype(np.float32))
    labels = hl.asarray(digits.target[order])
    n_test = len(order) // 5
    return (pixels[n_test:], labels[n_test:]), (pixels[:n_test], labels[:n_test])


def layer(rng, n_in, n_out):
    """A matrix and a row of biases, as leaves: tensors that gradients flow to."""
    weights = rng.normal(0, math.sqrt(2 / n_in), (n_in, n_out))
    return [hl.tensor(weights, hl.float32, requires_grad=True), hl.zeros(n_out).requires_grad_(True)]


def logits(pixels, parameters):
    """The network: one score for each image and digit."""
    w1, b1, w2, b2 = parameters
    return hl.relu(pixels @ w1 + b1) @ w2 + b2


def cross_entropy(scores, one_hot):
    """Mean over the batch of minus the logarithm of the probability that the right digit gets."""
    return -hl.mean(hl.sum(hl.log_softmax(scores) * one_hot, axis=1))


def train(parameters, pixels, labels, epochs, rng):
    """Stochastic gradient descent with momentum, in mini-batches."""
    velocities = [hl.zeros_like(p) for p in parameters]
    identity = hl.eye(10)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=epochs)
        for _ in range(epochs):
            order = hl.asarray(rng.permutation(len(labels)))
            for start in range(0, len(labels), BATCH):
                batch = order[start : start + BATCH]
                one_hot = hl.take(identity, hl.take(labels, batch), axis=0)
                loss = cross_entropy(logits(hl.take(pixels, batch, axis=0), parameters), one_hot)
                loss.backward()
                with hl.no_grad():  # the update itself is no part of any graph
                    for p, v in zip(parameters, velocities, strict=True):
                        v *= MOMENTUM
                        v += p.grad
                        p -= RATE * v
                        p.grad = None
            progress.update(task, advance=1, description=f"training, loss {loss.item():.4f}")


def accuracy(parameters, pixels, labels):
    """The share of images whose highest score is their digit's."""
    with hl.no_grad():
        hits = hl.argmax(logits(pixels, parameters), axis=1) == labels
    return hl.mean(hits.astype(hl.float32)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training set (30)")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights and the batches (0)")
    parser.add_argument("--page", type=Path, default=Path("build/demo/a_plus_b.html"), help="where the page goes")
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    training, test = load(rng)
    parameters = layer(rng, 64, HIDDEN) + layer(rng, HIDDEN, 10)
    train(parameters, *training, options.epochs, rng)
    print(f"test accuracy {accuracy(parameters, *test):.4f} on {len(test[1])} images it has never seen\n")

    a, b = test[0] @ parameters[0], parameters[1]  # what the first layer adds: a matrix and a row
    trace = hl.explain(lambda: a + b)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    print(f"\npage: {trace.save(options.page)}")


if __name__ == "__main__":
    main()
