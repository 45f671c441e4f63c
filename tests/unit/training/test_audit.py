"""`audit`: what it finds, what it names, and that it leaves everything as it was."""

from __future__ import annotations

import random
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from detaug import fingerprint
from detaug.training import audit
from detaug.training.auditing.report import AuditReport

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: its kernels are meant")


class OwnNoise(nn.Module):
    """Draws from a generator that no one seeded."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_numpy(self.rng.normal(size=x.shape)).to(x)


class Counting(nn.Module):
    """Depends on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.log: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.log.append(self.calls)
        return x * self.calls


class Slots:
    """Without a dictionary of attributes."""

    __slots__ = ("__private", "calls")

    def __init__(self) -> None:
        self.calls, self.__private = 0, [0]

    def count(self) -> int:
        self.calls += 1
        self.__private[0] += 1
        return self.calls + self.__private[0]


class CountingElsewhere(Counting):
    """In containers and objects of other kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.recent, self.slots = deque([1], maxlen=3), Slots()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.recent.append(self.recent[-1] + 1)
        return super().forward(x) * sum(self.recent) * self.slots.count()


class FirstCall(nn.Module):
    """Sets something up when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.offset: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.offset is None:
            self.offset = torch.ones(())
            return x
        return x + self.offset


class _NoisyGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (gradient,) = gradients
        return gradient + torch.from_numpy(np.random.default_rng().normal(size=gradient.shape)).to(gradient)


class NoisyBackward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.apply_noise(self.weight)

    def apply_noise(self, weight: torch.Tensor) -> torch.Tensor:
        return _NoisyGradient.apply(weight)  # type: ignore[no-any-return]


class NoisyInputGradient(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _NoisyGradient.apply(x)  # type: ignore[no-any-return]


class NoisyBuffer(nn.Module):
    """Its output is fine, but the state that the next step starts from is not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.running = torch.from_numpy(np.random.default_rng().normal(size=1)).float()
        return x


class NoiseBeforeChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child(x + float(np.random.default_rng().normal()))  # type: ignore[no-any-return]


class TwoBranches(nn.Module):
    """Both take the same tensor; the second is at fault."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, 4, 1)
        self.good = nn.Conv2d(4, 4, 1)
        self.bad = NoisyInputGradient()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        bad, good = self.bad(x), self.good(x)
        return bad + good  # type: ignore[no-any-return]


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Dropout(0.5))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inside, x, use_reentrant=self.reentrant)  # type: ignore[no-any-return]


class NoisyLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = OwnNoise()

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.part(nn.functional.cross_entropy(output, target).reshape(1))  # type: ignore[no-any-return]


def network(*middle: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    head = nn.Conv2d(4, 3, 1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(inplace=True), *middle, nn.Dropout(0.5), head
    )


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 1, 8, 8, generator=generator), torch.randint(0, 3, (2, 6, 6), generator=generator)


def cross_entropy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, target)


def listed(report: AuditReport, name: str) -> list[tuple[str, str, str]]:
    return [(use.name, use.phase, use.module) for use in report.operations if use.name == name]


def test_dropout_and_batch_norm_are_deterministic_from_one_random_state() -> None:
    report = audit(network(), cross_entropy, batch(), runs=4)
    assert report.deterministic
    assert report.first_difference is None
    assert (report.runs, report.modules) == (4, 6)
    assert report.gradients > 8
    assert str(report).startswith("Deterministic: 4 runs gave the same bytes")


@pytest.mark.parametrize("fault", [OwnNoise])
def test_first_module_whose_output_differs_is_named(fault: type[nn.Module]) -> None:
    report = audit(network(nn.Identity(), fault()), cross_entropy, batch())
    found = report.first_difference
    assert not report.deterministic
    assert found is not None
    assert (found.phase, found.module, found.module_class, found.what) == ("forward", "4", fault.__name__, "output")
    assert found.size.startswith(
        "torch.float32 of shape (2, 4, 6, 6); Mismatched elements: 288 / 288 (100.0%); Greatest abs"
    )
    assert found.size in str(report)
    assert f"4 ({fault.__name__}): output differs" in str(report)


def test_innermost_module_is_named_and_not_those_around_it() -> None:
    found = audit(nn.Sequential(network(nn.Sequential(nn.ReLU(), OwnNoise()))), cross_entropy, batch()).first_difference
    assert found is not None
    assert (found.module, found.module_class) == ("0.3.1", "OwnNoise")


@pytest.mark.parametrize("module", [Counting, CountingElsewhere, FirstCall])
def test_a_counter_or_a_cache_in_a_module_is_not_called_nondeterministic(module: type[nn.Module]) -> None:
    model = network(module())
    assert audit(model, cross_entropy, batch()).deterministic
    assert getattr(model[3], "calls", 0) == 0
    assert getattr(model[3], "offset", None) is None


def test_a_data_set_that_a_module_holds_is_neither_copied_nor_written(tmp_path: Path) -> None:
    model = network()
    path = tmp_path / "map"
    model.map = np.memmap(path, np.float32, "w+", shape=(8,))
    model.view = np.asarray(model.map)
    model.cases = np.zeros(2**25, np.uint8)
    stamp = path.stat().st_mtime_ns
    audit(network(), cross_entropy, batch())  # the first one imports modules, whose memory would count
    tracemalloc.start()
    assert audit(model, cross_entropy, batch()).deterministic
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()
    model.map.flush()
    assert path.stat().st_mtime_ns == stamp


def test_overlapping_buffers_and_nested_outputs_are_compared() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("same", torch.zeros(1).expand(4))
            self.register_buffer("window", torch.arange(6.0).as_strided((3, 3), (1, 1)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = torch.nested.nested_tensor([x[0], x[1, :2]])
            return x + self.pass_on(parts).unbind()[0].sum() + self.same.sum() + self.window.sum()

        def pass_on(self, parts: torch.Tensor) -> torch.Tensor:
            return self.identity(parts)

    module = Nested()
    module.identity = nn.Identity()
    assert audit(network(module), cross_entropy, batch()).deterministic
    assert module.window.tolist()[1] == [1, 2, 3]


def test_code_between_modules_is_pointed_at() -> None:
    found = audit(network(NoiseBeforeChild()), cross_entropy, batch()).first_difference
    assert found is not None
    assert found.module == "3.child"
    assert "what went into 3.child differed already" in found.note
    assert found.note.endswith("in 3")


@pytest.mark.parametrize(
    ("fault", "what"), [(NoisyInputGradient, "gradient of its input"), (NoisyBackward, "gradient of weight")]
)
def test_first_module_whose_gradient_differs_is_named(fault: type[nn.Module], what: str) -> None:
    report = audit(network(nn.Identity(), fault()), cross_entropy, batch())
    found = report.first_difference
    assert found is not None
    assert report.forward_difference is None
    assert (found.phase, found.module, found.module_class, found.what) == ("backward", "4", fault.__name__, what)
    assert found.operation == "_NoisyGradientBackward"
    assert "Greatest absolute difference: " in found.size


def test_code_before_a_part_is_its_parent_s_fault() -> None:
    class NoisyBeforeItsPart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(_NoisyGradient.apply(x)) * 1.0  # type: ignore[no-any-return]

    found = audit(network(NoisyBeforeItsPart()), cross_entropy, batch()).first_difference
    assert found is not None
    assert (found.phase, found.module) == ("backward", "3")


def test_of_two_branches_the_one_at_fault_is_named() -> None:
    found = audit(network(TwoBranches()), cross_entropy, batch()).first_difference
    assert found is not None
    assert (found.phase, found.module) == ("backward", "3.bad")


def test_buffer_that_differs_is_found_though_the_output_does_not() -> None:
    found = audit(network(NoisyBuffer()), cross_entropy, batch()).first_difference
    assert found is not None
    assert (found.phase, found.module, found.what) == ("forward", "3", "buffer running")


def test_noise_in_the_loss_is_the_loss_s() -> None:
    found = audit(network(), NoisyLoss(), batch()).first_difference
    assert found is not None
    assert (found.phase, found.module, found.module_class) == ("loss", "loss.part", "OwnNoise")

    def noisy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(output, target) * float(np.random.default_rng().normal())

    found = audit(network(), noisy, batch()).first_difference
    assert found is not None
    assert (found.phase, found.module, found.module_class) == ("loss", "loss", "noisy")


def test_hook_that_changes_a_parameter_s_gradient_is_found() -> None:
    model = network()
    model[0].weight.register_hook(lambda gradient: gradient + float(np.random.default_rng().normal()))
    found = audit(model, cross_entropy, batch()).first_difference
    assert found is not None
    assert (found.phase, found.module, found.what) == ("backward", "0", "gradient of weight")


def test_nans_of_equal_bytes_are_equal() -> None:
    report = audit(network(), lambda output, target: cross_entropy(output / 0 * 0, target), batch())
    assert report.deterministic


def test_a_nan_against_a_number_is_a_difference() -> None:
    calls: list[int] = []

    class NowAndThenNan(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return x if len(calls) % 2 else x * float("nan")

    report = audit(network(NowAndThenNan()), cross_entropy, batch())
    assert report.first_difference is not None
    assert "Greatest absolute difference: nan" in report.first_difference.size


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_activations_are_followed(reentrant: bool) -> None:
    report = audit(network(Checkpointed(reentrant)), cross_entropy, batch())
    assert report.deterministic
    model = network(Checkpointed(reentrant))
    model[3].inside.append(NoisyInputGradient())
    found = audit(model, cross_entropy, batch()).first_difference
    assert found is not None
    assert found.phase == "backward"


@pytest.mark.parametrize("make", [network, lambda: network(OwnNoise(), Counting(), NoisyBuffer())])
def test_everything_is_left_as_it_was_found(make: Callable[[], nn.Sequential]) -> None:
    model, loss = make(), NoisyLoss()
    model[4].eval()
    model[0].bias.requires_grad_(False)
    sample = batch()
    cross_entropy(model(sample[0]), sample[1]).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    buffers = dict(model.named_buffers())

    def everything() -> str:
        random_state = (
            random.getstate(),
            np.random.get_state(),
            torch.get_rng_state(),
            loss.part.rng.bit_generator.state,
        )
        attributes = [(getattr(m, "calls", 0), list(getattr(m, "log", [])), m.training) for m in model.modules()]
        generators = [m.rng.bit_generator.state for m in model.modules() if isinstance(m, OwnNoise)]
        hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in [*model.modules(), *loss.modules()]]
        flags = [parameter.requires_grad for parameter in model.parameters()]
        switches = (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark)
        grads = [parameter.grad for parameter in model.parameters()]
        return fingerprint(
            [dict(model.state_dict()), grads, random_state, attributes, generators, hooks, flags, switches]
        )

    before, of_batch = everything(), fingerprint(sample)
    for _ in range(2):
        audit(model, loss, sample)
        assert everything() == before
        assert all(now.grad is then for now, then in zip(model.parameters(), gradients, strict=True))
        assert all(buffer is buffers[name] for name, buffer in model.named_buffers())
        assert fingerprint(sample) == of_batch

    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            random.random()
            raise ZeroDivisionError

    before = everything()
    with pytest.raises(ZeroDivisionError):
        audit(nn.Sequential(model, Failing()), loss, sample)
    assert everything() == before


def test_step_that_writes_into_its_input_is_given_a_fresh_one() -> None:
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2)

    sample = batch()
    before = fingerprint(sample)
    assert audit(nn.Sequential(Doubling(), network()), cross_entropy, sample).deterministic
    assert fingerprint(sample) == before


def test_batches_come_as_pairs_arrays_and_nested() -> None:
    image, target = batch()
    for sample in ([image, target], (image.numpy(), target.numpy())):
        assert audit(network(), cross_entropy, sample).deterministic

    def of_several(output: torch.Tensor, targets: list[torch.Tensor]) -> torch.Tensor:
        return sum((cross_entropy(output, each) for each in targets), torch.zeros(()))

    assert audit(network(), of_several, (image, [target, target])).deterministic

    class OfTwo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
            return {"out": self.net(x + y), "scale": 1.5}

    assert audit(OfTwo(), lambda out, y: cross_entropy(out["out"], y), ((image, image), target)).deterministic


def test_what_pytorch_alerts_on_and_what_it_does_not_is_listed_where_it_ran() -> None:
    class Putting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.clone().put_(torch.tensor([0]), torch.zeros(1)) + x.sort().values[..., :1] + x.topk(1).values

    report = audit(network(Putting()), cross_entropy, batch())
    assert report.deterministic
    uses = {use.name: use for use in report.operations}
    assert set(uses) == {"put_", "sort", "topk"}
    assert [uses[name].alerted for name in ("put_", "sort", "topk")] == [True, False, False]
    assert all((use.module, use.module_class) == ("3", "Putting") for use in report.operations)
    assert [use.name for use in report.operations if use.phase == "forward"] == ["put_", "sort", "topk"]
    assert "put_ (raises in deterministic mode) in 3 (Putting)" in str(report)
    assert "use index_put_" in str(report)
    assert "On a GPU it may: audit there." in str(report)


def test_a_report_on_a_cpu_claims_nothing_about_a_gpu() -> None:
    text = str(audit(network(), cross_entropy, batch()))
    assert "PyTorch alerts on no operation that ran on cpu. On a GPU it may: audit there." in text


def test_operation_that_raises_in_deterministic_mode_is_reported_and_does_not_end_the_audit() -> None:
    class Putting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.clone().put_(torch.tensor([0]), torch.zeros(1))

    model = network(Putting())
    torch.set_deterministic_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="deterministic implementation"):
            model(batch()[0])
        report = audit(model, cross_entropy, batch())
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_deterministic_debug_mode("default")
    assert report.deterministic
    assert ("put_", "forward", "3") in listed(report, "put_")


def _nnunet_network(residual: bool) -> nn.Module:
    from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet

    blocks = {"n_blocks_per_stage" if residual else "n_conv_per_stage": [1, 1, 1]}
    return (ResidualEncoderUNet if residual else PlainConvUNet)(
        input_channels=1,
        n_stages=3,
        features_per_stage=(4, 8, 8),
        conv_op=nn.Conv3d,
        kernel_sizes=3,
        strides=(1, 2, 2),
        num_classes=3,
        n_conv_per_stage_decoder=(1, 1),
        conv_bias=True,
        norm_op=nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True},
        deep_supervision=True,
        **blocks,
    )


@pytest.mark.parametrize("residual", [False, True])
def test_nnunet_s_networks_and_loss_are_deterministic_on_the_cpu(residual: bool) -> None:
    from nnunetv2.training.loss.compound_losses import DC_and_CE_loss
    from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
    from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss

    dice = {"batch_dice": True, "smooth": 1e-5, "do_bg": False, "ddp": False}
    compound = DC_and_CE_loss(dice, {}, weight_ce=1, weight_dice=1, dice_class=MemoryEfficientSoftDiceLoss)
    loss = DeepSupervisionWrapper(compound, [2 / 3, 1 / 3])
    target = [torch.randint(0, 3, (2, 1, size, size, size)).float() for size in (16, 8)]
    report = audit(_nnunet_network(residual), loss, (torch.randn(2, 1, 16, 16, 16), target))
    assert report.deterministic, str(report)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": cross_entropy}, TypeError, r"must be a torch\.nn\.Module"),
        ({"loss": 3}, TypeError, r"loss\(output, target\), got 3"),
        ({"model": network().requires_grad_(False)}, ValueError, "no parameter of Sequential requires a gradient"),
        ({"model": nn.LazyLinear(3)}, ValueError, "'weight' has no shape yet"),
        ({"device": "gpu"}, ValueError, "'gpu' is unknown or absent"),
        ({"device": 0}, TypeError, "device must be a string"),
        ({"device": "meta"}, ValueError, "'meta' is unknown or absent"),
        ({"runs": 1}, ValueError, "at least 2"),
        ({"runs": 2.5}, TypeError, "runs must be"),
        ({"sample_batch": torch.zeros(2)}, TypeError, r"\(input, target\).* got Tensor"),
        ({"sample_batch": (1, 2, 3)}, TypeError, r"\(input, target\)"),
        ({"sample_batch": {"data": 1}}, TypeError, r"\(input, target\).* got dict"),
        ({"loss": lambda output, target: 1.0}, TypeError, "must return a tensor with one element, got float"),
        ({"loss": lambda output, target: output}, ValueError, r"one element, got shape \(2, 3, 6, 6\)"),
        ({"loss": lambda output, target: target.sum()}, ValueError, "does not depend on any parameter"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"model": network(), "loss": cross_entropy, "sample_batch": batch(), **change}
    with pytest.raises(error, match=message):
        audit(**arguments)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_scripted_model_is_refused_and_a_scripted_part_counts_as_the_module_around_it() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()))
    with pytest.raises(TypeError, match="pass the module that it was scripted from"):
        audit(scripted, cross_entropy, batch())
    assert audit(network(scripted), cross_entropy, batch()).deterministic


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA: its absence is meant")
def test_device_that_is_not_there_is_refused_before_anything_runs() -> None:
    model = network(Counting())
    with pytest.raises(ValueError, match=r"'cuda' is unknown or absent; pass 'cpu'"):
        audit(model, cross_entropy, batch(), "cuda")
    assert model[3].calls == 0


@NEEDS_CUDA
def test_on_a_gpu_the_model_goes_there_and_back_and_pytorch_s_warnings_are_listed() -> None:
    model = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.AvgPool3d(2))
    before = fingerprint(dict(model.state_dict()))
    sample = torch.randn(2, 1, 16, 16, 16), torch.randint(0, 4, (2, 8, 8, 8))
    report = audit(model, nn.CrossEntropyLoss(), sample, "cuda")
    assert report.device == "cuda:0"
    assert fingerprint(dict(model.state_dict())) == before
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert any("avg_pool3d_backward" in use.name for use in report.operations)


@NEEDS_CUDA
def test_on_a_gpu_atomic_additions_are_found() -> None:
    model = nn.Sequential(nn.Conv3d(1, 4, 1), nn.Upsample(scale_factor=(3.1, 3.1, 3.1), mode="trilinear"))
    sample = torch.randn(2, 1, 24, 24, 24), torch.randint(0, 4, (2, 74, 74, 74))
    found = audit(model, nn.CrossEntropyLoss(reduction="sum"), sample, "cuda", runs=5).first_difference
    assert found is not None
