"""deterministic_mode sets every switch that a deterministic run depends on, and restores it."""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import partial
from operator import attrgetter

import pytest
import torch

from detaug.training import deterministic_mode
from detaug.training.switches import CUBLAS_VARIABLE, set_deterministic_mode
from tests.support.logs import levels_of, records_of

NEW_PRECISION = hasattr(torch._C, "_get_fp32_precision_getter")
PRECISIONS = [
    ("cuda", "matmul"),
    ("cuda", "conv"),
    ("cuda", "rnn"),
    ("mkldnn", "matmul"),
    ("mkldnn", "conv"),
]


def of_torch(path):
    """Return a function that reads an attribute somewhere below torch."""
    return partial(attrgetter(path), torch)


def is_inductor_deterministic():
    return sys.modules["torch._inductor.config"].deterministic


def is_tunable_enabled():
    return torch.cuda.tunable.is_enabled()


#: Everything that a deterministic run depends on: name -> (function that reads it, values with
#: which no two runs differ). A value may be the name of the error that an older torch raises.
SETTINGS = {
    "cudnn.deterministic": (of_torch("backends.cudnn.deterministic"), (True,)),
    "cudnn.benchmark": (of_torch("backends.cudnn.benchmark"), (False,)),
    "algorithms": (torch.are_deterministic_algorithms_enabled, (True,)),
    "warn_only": (torch.is_deterministic_algorithms_warn_only_enabled, (False,)),
    "inductor": (is_inductor_deterministic, (True, "AttributeError", "KeyError")),
    "mkldnn": (of_torch("backends.mkldnn.deterministic"), (True, "AttributeError")),
    "tunable": (is_tunable_enabled, (False, "AttributeError")),
    "cublas": (partial(os.environ.get, "CUBLAS_WORKSPACE_CONFIG"), (":4096:8", ":16:8")),
    "fill": (of_torch("utils.deterministic.fill_uninitialized_memory"), (False,)),
    "matmul.allow_tf32": (of_torch("backends.cuda.matmul.allow_tf32"), (False,)),
    "cudnn.allow_tf32": (of_torch("backends.cudnn.allow_tf32"), (False,)),
    "matmul precision": (torch.get_float32_matmul_precision, ("highest",)),
}
if NEW_PRECISION:
    for _backend, _operation in (
        *PRECISIONS,
        ("generic", "all"),
        ("cuda", "all"),
        ("mkldnn", "all"),
    ):
        _read = partial(torch._C._get_fp32_precision_getter, _backend, _operation)
        _right = () if _operation == "all" else ("ieee", "none")
        SETTINGS[f"{_backend}.{_operation}"] = (_read, _right)


def value_of(name):
    """Return a setting's value, or the name of the error that reading it raises."""
    read, _ = SETTINGS[name]
    try:
        return read()
    except (RuntimeError, AttributeError, KeyError) as error:
        return type(error).__name__


def in_force():
    return {name: value_of(name) for name in SETTINGS}


def not_deterministic():
    """Return the settings with which two runs, or two kinds of GPU, may differ."""
    names = set()
    for name, (_, right_values) in SETTINGS.items():
        if right_values and value_of(name) not in right_values:
            names.add(name)
    return names


def set_everything_the_wrong_way():
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.benchmark = True
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    if hasattr(torch.backends.mkldnn, "deterministic"):
        torch.backends.mkldnn.deterministic = False
    if hasattr(torch.cuda, "tunable") and torch.backends.cuda.is_built():
        torch.cuda.tunable.enable(True)


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """Set torch's defaults before and after each test, and remove the variable from outside."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)

    def defaults():
        set_everything_the_wrong_way()
        torch.backends.cudnn.benchmark = False
        if hasattr(torch.cuda, "tunable") and torch.backends.cuda.is_built():
            torch.cuda.tunable.enable(False)
        if NEW_PRECISION:
            torch.backends.fp32_precision = "none"
            for backend in ("cuda", "mkldnn"):
                torch._C._set_fp32_precision_setter(backend, "all", "none")
            for backend, operation in PRECISIONS:
                torch._C._set_fp32_precision_setter(backend, operation, "none")
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("highest")
        # The calls above gave matmul a setting of its own, which it does not have by default.
        if NEW_PRECISION:
            for backend in ("cuda", "mkldnn"):
                torch._C._set_fp32_precision_setter(backend, "matmul", "none")

    defaults()
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    defaults()


def test_everything_is_set_inside_and_put_back_outside():
    set_everything_the_wrong_way()
    values_before = in_force()
    assert len(not_deterministic()) >= 8
    with deterministic_mode() as changes:
        assert not_deterministic() == set()
    assert in_force() == values_before
    assert changes["torch.backends.cudnn.benchmark"] == (True, False)
    assert changes["torch.use_deterministic_algorithms"] == (False, True)
    assert changes[CUBLAS_VARIABLE] == ("not set", ":4096:8")


@pytest.mark.skipif(not NEW_PRECISION, reason="this torch has no fp32_precision")
@pytest.mark.parametrize(
    ("path", "precision", "varies"),
    [
        ("", "tf32", "cuda.matmul"),
        ("cuda.matmul", "tf32", "cuda.matmul"),
        ("cudnn.conv", "tf32", "cuda.conv"),
        ("mkldnn.matmul", "bf16", "mkldnn.matmul"),
    ],
)
def test_precision_set_in_the_new_way_is_lifted_and_put_back(path, precision, varies):
    backend = attrgetter(path)(torch.backends) if path else torch.backends
    backend.fp32_precision = precision
    values_before = in_force()
    assert varies in not_deterministic()
    with deterministic_mode():
        assert not_deterministic() == set()
    assert in_force() == values_before
    # A setting that followed the general one follows it again.
    if not path:
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        torch.backends.fp32_precision = "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"


def test_an_operation_without_a_deterministic_algorithm_raises_only_inside():
    def put():
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1), accumulate=False)

    put()
    with deterministic_mode(), pytest.raises(RuntimeError, match="deterministic"):
        put()
    with deterministic_mode("warn"), pytest.warns(UserWarning, match="deterministic"):
        put()
    put()


def test_what_stood_right_is_not_listed_and_the_rest_reads_line_by_line():
    torch.backends.cudnn.deterministic = True
    with deterministic_mode() as changes:
        pass
    assert "torch.backends.cudnn.deterministic" not in changes
    assert "torch.use_deterministic_algorithms: False -> True" in repr(changes).splitlines()
    for old, new in changes.values():
        assert old != new
    from_json = json.loads(json.dumps(dict(changes)))
    assert from_json["torch.use_deterministic_algorithms"] == [False, True]
    with deterministic_mode(), deterministic_mode() as again:
        assert repr(again) == "nothing changed"


@pytest.mark.parametrize(("value", "num_warnings"), [(":4096:8", 0), (":16:8", 0), (":0:0", 1)])
def test_a_cublas_workspace_that_is_set_is_kept_with_a_warning_if_it_promises_nothing(
    monkeypatch, caplog, value, num_warnings
):
    monkeypatch.setenv(CUBLAS_VARIABLE, value)
    with deterministic_mode() as changes:
        assert os.environ[CUBLAS_VARIABLE] == value
    assert os.environ[CUBLAS_VARIABLE] == value
    assert CUBLAS_VARIABLE not in changes
    assert levels_of(caplog) == [logging.WARNING] * num_warnings
    assert (repr(value) in caplog.text) == (num_warnings > 0)


def yes():
    return True


def test_a_cublas_workspace_that_comes_late_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_initialized", yes)
    with deterministic_mode():
        assert os.environ[CUBLAS_VARIABLE] == ":4096:8"
    assert "already running" in caplog.text
    caplog.clear()
    monkeypatch.setenv(CUBLAS_VARIABLE, ":16:8")
    with deterministic_mode():
        pass
    assert not records_of(caplog)


@pytest.mark.parametrize(
    ("mode", "keywords", "error", "message"),
    [
        ("strict", {}, ValueError, "'strict'"),
        (1, {}, TypeError, "False, True or \"warn\", got 1"),
        (None, {}, TypeError, "None"),
        (True, {"tf32": "ieee"}, TypeError, "tf32 must be False or None"),
        (True, {"tf32": True}, TypeError, "tf32 must be False or None"),
        (True, {"threads": 0}, ValueError, "threads must be at least 1"),
    ],
)  # fmt: skip
def test_other_values_are_refused_and_change_nothing(mode, keywords, error, message):
    values_before = in_force()
    with pytest.raises(error, match=message), deterministic_mode(mode, **keywords):
        pass
    assert in_force() == values_before


def test_it_is_set_for_good_false_switches_it_off_and_threads_are_put_back(monkeypatch) -> None:
    # With a value to restore, monkeypatch undoes what the calls below set.
    monkeypatch.setenv(CUBLAS_VARIABLE, ":16:8")
    assert "torch.use_deterministic_algorithms" in set_deterministic_mode(True)
    assert not_deterministic() == set()
    changes = set_deterministic_mode(False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert "torch.use_deterministic_algorithms" in changes
    set_deterministic_mode(True, threads=2)
    with deterministic_mode(False, threads=1) as changes:
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == 1
    assert changes["torch.get_num_threads"] == (2, 1)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device: it compares two convolutions there"
)
def test_a_convolution_on_a_gpu_gives_the_same_gradient_twice():
    with deterministic_mode():
        convolution = torch.nn.Conv3d(8, 8, 3).cuda()
        image = torch.randn(2, 8, 24, 24, 24, device="cuda")
        gradients = []
        for _ in range(2):
            convolution.zero_grad()
            convolution(image).square().sum().backward()
            gradients.append(convolution.weight.grad.clone())
    assert torch.equal(*gradients)
