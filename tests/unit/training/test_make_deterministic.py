"""make_deterministic changes layers in place, keeps all else, and reports what it cannot change."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from detaug.training import deterministic_functions, make_deterministic
from detaug.training.layers.swapping import swap_layers


class Flattening(nn.CrossEntropyLoss):
    """A user's loss that calls its parent's."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input.flatten(2), target.flatten(1))


class Stubborn(nn.CrossEntropyLoss):
    """A user's loss that does not call its parent's."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return functional.cross_entropy(input, target, self.weight)


class Functional(nn.Module):
    """A network whose code calls functions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(functional.avg_pool3d(x, 2), scale_factor=2, mode="trilinear")


class Holder(nn.Module):
    """A module with others in plain containers, where named_modules does not find them."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = [nn.CrossEntropyLoss(), {"pool": nn.AvgPool3d(2)}]


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(1, 2, 3, padding=1),
        nn.AvgPool3d(2),
        nn.Upsample(scale_factor=2, mode="trilinear"),
    ).double()


def assert_same_value_and_gradients(
    original: nn.Module, module: nn.Module, *arguments: Any
) -> None:
    """Assert that two modules give the same value, and gradients of arguments and parameters."""
    expected = value_and_gradients(original, *arguments)
    actual = value_and_gradients(module, *arguments)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-10)


def value_and_gradients(module: nn.Module, *arguments: Any) -> list[torch.Tensor]:
    """Return a module's value, and the gradients of its sum."""
    value = module(*arguments)
    leaves = [tensor for tensor in _tensors(arguments) if tensor.requires_grad]
    leaves += module.parameters()
    gradients = torch.autograd.grad(value.sum(), leaves, allow_unused=True, materialize_grads=True)
    return [value, *gradients]


def _tensors(values: Any) -> list[torch.Tensor]:
    """Return all tensors in nested lists and tuples."""
    if isinstance(values, torch.Tensor):
        return [values]
    tensors = []
    for value in values:
        tensors += _tensors(value)
    return tensors


def nodes_of_graph(value: torch.Tensor) -> set[str]:
    """Return the names of all operations that a backward pass from a value would run."""
    nodes: set[Any] = set()
    waiting = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            waiting.extend(next_node for next_node, _ in node.next_functions)
    return {node.name() for node in nodes}


def kinds_of_nodes(model: nn.Module) -> set[str]:
    """Return the names of a graph's nodes without their numbers."""
    return {name[:-1] for name in nodes_of_graph(model(noise(1, 1, 6, 6, 6)))}


def noise(*shape: int) -> torch.Tensor:
    """Return normals that need a gradient, float64; a shape gives the same ones every time."""
    random = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_()


def test_a_network_computes_the_same_with_other_gradients_and_keeps_parameters_hooks_and_keys() -> (
    None
):
    model = network()
    original = copy.deepcopy(model)
    keys = list(model.state_dict())
    pool = model[1]
    calls = []

    def hook(*_: Any) -> None:
        calls.append("hook")

    pool.register_forward_hook(hook)
    report = swap_layers(model)
    assert report.swapped == {"1": "AvgPool3d", "2": "Upsample"}
    assert not report.could_not
    assert model[1] is pool
    assert isinstance(pool, nn.AvgPool3d)
    assert list(model.state_dict()) == keys
    assert_same_value_and_gradients(original, model, noise(1, 1, 6, 6, 6))
    assert calls == ["hook"]
    varying = {"AvgPool3DBackward", "UpsampleTrilinear3DBackward"}
    assert varying <= kinds_of_nodes(original)
    assert varying.isdisjoint(kinds_of_nodes(model))


@pytest.mark.parametrize(
    "module", [nn.CrossEntropyLoss(), nn.AvgPool3d(2), nn.Upsample(2, None, "bilinear")]
)
def test_every_layer_can_be_the_root_and_swapping_twice_changes_nothing(module: nn.Module) -> None:
    class_name = type(module).__name__
    text = repr(module)
    assert swap_layers(module).swapped == {"": class_name}
    assert repr(module) == text
    assert not swap_layers(module).swapped


@pytest.mark.parametrize("kind", [Flattening, Stubborn])
def test_a_subclass_keeps_its_forward_and_ends_in_the_deterministic_layer_also_as_a_copy(
    kind: type[nn.Module],
) -> None:
    loss = kind(weight=torch.tensor([1.0, 2.0, 3.0]).double())
    logits = noise(2, 3, 4, 4, 4)
    target = torch.randint(0, 3, (2, 4, 4, 4))
    original = copy.deepcopy(loss)
    assert list(swap_layers(loss).swapped) == [""]
    assert isinstance(loss, kind)
    assert not _is_of_detaug(original(logits, target))
    copies = [
        copy.deepcopy(loss),
        pickle.loads(pickle.dumps(loss)),
        _saved_and_loaded(loss),
    ]
    for swapped in (loss, *copies):
        assert type(swapped) is type(loss)
        assert _is_of_detaug(swapped(logits, target))
        assert_same_value_and_gradients(original, swapped, logits, target)


def _saved_and_loaded(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_what_cannot_be_swapped_is_reported_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    replaced = nn.AvgPool3d(2)
    replaced.forward = torch.clone  # type: ignore[method-assign]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.AvgPool3d(2))
    model = nn.ModuleDict(
        {
            "functional": Functional(),
            "unpool": nn.MaxUnpool3d(2),
            "replaced": replaced,
            "scripted": scripted,
            "fine": nn.Conv3d(1, 1, 1),
            "nearest": nn.Upsample(scale_factor=2),
            "to one": nn.AdaptiveAvgPool3d(1),
        }
    )
    report = swap_layers(model)
    assert not report.swapped
    assert set(report.could_not) == {"replaced", "scripted"}
    assert "replaced on the instance" in report.could_not["replaced"]
    assert "before torch.jit" in report.could_not["scripted"]
    for name in report.could_not:
        assert name in str(report)
    assert "by their classes; detaug.training.audit looks at what they compute" in str(report)
    assert make_deterministic(model) is model
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    for message, name in zip(warned, report.could_not, strict=True):
        assert message.startswith(f"make_deterministic could not swap {name}: ")
    assert "run it within detaug.training.deterministic_functions()" in caplog.text


@pytest.mark.parametrize(
    "module",
    [
        nn.NLLLoss(),
        nn.AdaptiveAvgPool3d((1, 1, 2)),
        nn.ReflectionPad2d(1),
        nn.LazyConv3d(1, 3, padding=1, padding_mode="reflect"),
        nn.Upsample(scale_factor=2, mode="bicubic"),
        nn.Upsample(scale_factor=2, mode="area"),
    ],
)
def test_a_layer_that_has_no_deterministic_form_is_named(
    module: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    make_deterministic(nn.Sequential(module))
    assert f"could not swap 0: {type(module).__name__}: " in caplog.text
    assert "no deterministic form here" in caplog.text


def test_modules_in_plain_containers_are_found_each_once() -> None:
    holder = Holder()
    assert set(swap_layers(nn.Sequential(holder, holder)).swapped) == {
        "0.losses[0]",
        "0.losses[1]['pool']",
    }


@pytest.mark.parametrize("wrong", [None, functional.cross_entropy, nn.AvgPool3d, "model"])
def test_what_is_no_module_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module"):
        make_deterministic(wrong)


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("DC_and_CE_loss", ({},)),
        ("DC_and_CE_loss", ({}, 1, 1, 2)),
        ("DC_and_topk_loss", ({"k": 10},)),
    ],
)
def test_nnunets_losses_with_deep_supervision(name: str, arguments: tuple[Any, ...]) -> None:
    from nnunetv2.training.loss import compound_losses
    from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper

    dice = {"batch_dice": True, "smooth": 1e-5, "do_bg": False, "ddp": False}
    single = getattr(compound_losses, name)(dice, *arguments)
    loss = DeepSupervisionWrapper(single, [0.7, 0.3])
    original = copy.deepcopy(loss)
    assert list(swap_layers(loss).swapped) == ["loss.ce"]
    logits = [noise(2, 3, 8, 8, 8), noise(2, 3, 4, 4, 4)]
    targets = [torch.randint(0, 3, (2, 1, size, size, size)).float() for size in (8, 4)]
    unpickled = pickle.loads(pickle.dumps(loss))
    assert_same_value_and_gradients(original, unpickled, logits, targets)


def test_nnunets_networks() -> None:
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet

    arguments = (
        1,
        2,
        [2, 4],
        nn.Conv3d,
        3,
        [1, 2],
        1,
        3,
        1,
        True,
        nn.InstanceNorm3d,
        {"affine": True},
    )
    model = ResidualEncoderUNet(*arguments, nonlin=nn.LeakyReLU).double()
    original = copy.deepcopy(model)
    report = swap_layers(model)
    assert list(report.swapped) == ["encoder.stages.1.blocks.0.skip.0"]
    assert not report.could_not
    assert_same_value_and_gradients(original, model, noise(1, 1, 4, 4, 4))


X = noise(1, 2, 4, 4, 4)
TARGET = torch.zeros(1, 4, 4, 4, dtype=torch.int64)


def cross_entropy() -> torch.Tensor:
    return functional.cross_entropy(X, TARGET)


def cross_entropy_of_a_module() -> torch.Tensor:
    return nn.CrossEntropyLoss()(X, TARGET)


def average_pooling() -> torch.Tensor:
    return functional.avg_pool3d(X, 2)


def interpolation() -> torch.Tensor:
    return functional.interpolate(X, scale_factor=2, mode="trilinear")


def upsampling() -> torch.Tensor:
    return functional.upsample(X, scale_factor=2, mode="trilinear")


def bilinear_upsampling() -> torch.Tensor:
    return functional.upsample_bilinear(X[0], scale_factor=2)


def within_a_module() -> torch.Tensor:
    return Functional()(X)


@pytest.mark.parametrize(
    "call",
    [
        cross_entropy,
        cross_entropy_of_a_module,
        average_pooling,
        interpolation,
        upsampling,
        bilinear_upsampling,
        within_a_module,
    ],
)
def test_functions_are_redirected_within_the_block_only(
    call: Callable[[], torch.Tensor],
) -> None:
    expected = call()
    assert not _is_of_detaug(expected), "redirected outside of the block"
    with deterministic_functions():
        value = call()
    torch.testing.assert_close(value, expected)
    assert _is_of_detaug(value), "not redirected"


def _is_of_detaug(value: torch.Tensor) -> bool:
    """Return whether one of detaug's functions has computed a value."""
    # The mean of a loss ends in a division.
    if value.grad_fn.name() == "DivBackward0":
        return True
    return any(name.startswith("_Map") for name in nodes_of_graph(value))


def test_functions_with_nothing_to_redirect_stay_pytorchs() -> None:
    with deterministic_functions():
        assert functional.pad(torch.ones(1, 1), (1, 1)).tolist() == [[0, 1, 0]]
        assert functional.avg_pool2d(torch.ones(1, 2, 2), 2).tolist() == [[[1.0]]]


@pytest.mark.slow
def test_a_swapped_model_compiles_as_one_graph_and_exports() -> None:
    model = make_deterministic(
        nn.Sequential(
            nn.Conv3d(1, 2, 3, padding=1),
            nn.AvgPool3d(2),
            nn.Upsample(scale_factor=2, mode="trilinear"),
        )
    )
    x, y = (noise(1, 1, 6, 6, 6).detach().float().requires_grad_() for _ in range(2))
    model(x).square().sum().backward()
    torch.compile(model, fullgraph=True, backend="aot_eager")(y).square().sum().backward()
    torch.testing.assert_close(y.grad, x.grad)
    for strict in (False, True):
        exported = torch.export.export(model, (x.detach(),), strict=strict)
        assert torch.equal(exported.module()(x.detach()), model(x))
