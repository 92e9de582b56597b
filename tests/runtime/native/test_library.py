"""How the library is built and found, its threads, and forks."""

import os
import threading

import pytest
import torch
from lib.waiting import ended

from decgraph.errors import DecError
from decgraph.runtime.native import library as native
from decgraph.runtime.native.products import NativeProduct

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C++ compiler or no AVX2")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_it_is_built_once_and_whole(tmp_path, monkeypatch):
    """By a compiler that writes the library there is."""
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {native.library()._name} "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    path = native.built()
    assert [p.name for p in (tmp_path / "native").iterdir()] == [path.name]
    monkeypatch.setattr(native.subprocess, "run", None)  # is not called again
    assert native.built() == path


def test_a_compiler_that_fails_is_asked_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    assert native.built() is None and "could not build" in caplog.text
    monkeypatch.setattr(native.subprocess, "run", None)
    assert native.built() is None
    monkeypatch.setenv("CXX", "there-is-no-such-compiler")
    assert native.library.__wrapped__() is None


def test_the_environment_chooses(monkeypatch):
    monkeypatch.setenv("DECGRAPH_NATIVE", "0")
    assert native.library.__wrapped__() is None
    monkeypatch.delenv("DECGRAPH_NATIVE")
    path = native.library()._name
    monkeypatch.setattr(native, "built", lambda: path)
    monkeypatch.setenv("DECGRAPH_NATIVE_ISA", "sse9")
    with pytest.raises(DecError, match="sse9"):
        native.library.__wrapped__()
    native.library().native_isa(0)


def test_the_child_of_a_fork_computes(two_threads):
    w, x = torch.randn(700, 300), torch.randn(3, 300)
    product = NativeProduct(w)
    exact = product(x)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"y" if torch.equal(product(x), exact) else b"n")
        os._exit(0)
    os.close(writing)
    ended = threading.Timer(60, os.kill, (child, 9))
    ended.start()
    assert os.read(reading, 1) == b"y"
    ended.cancel()
    os.waitpid(child, 0)


def test_sessions_at_once(two_threads):
    products = [NativeProduct(torch.randn(400 + n, 256)) for n in range(4)]
    rows = [torch.randn(1 + 3 * n, 256) for n in range(4)]
    exact = [product(x) for product, x in zip(products, rows, strict=True)]
    wrong = []

    def session(n):
        for _ in range(100):
            if not torch.equal(products[n](rows[n]), exact[n]):
                wrong.append(n)

    threads = [threading.Thread(target=session, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        ended("a session", thread)
    assert not wrong
