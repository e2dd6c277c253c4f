"""Optimisers over a module's trainable parameters, with float32 masters for half-precision weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.plan.types import OptimizerPlan

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from galley.engines.group import Group


class MasterOptimizer:
    """An optimiser whose state and arithmetic are float32 whatever the weights are.

    A trainable weight in bf16 or fp16 gets a float32 master: gradients accumulate in the master, the update is applied
    to it, and the weight is its rounding. Small updates are then never lost to rounding (Micikevicius et al., 2018).

    Args:
        module: its parameters that require gradients are trained.
        plan: optimiser and hyper-parameters.
    """

    def __init__(self, module: nn.Module, plan: OptimizerPlan) -> None:
        self.clip = plan.clip
        self.weights = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.masters = {name: _master(weight) for name, weight in self.weights.items()}
        self.optimizers = build_optimizers(self.masters, plan, embeddings=embedding_names(module))

    def collect(self) -> None:
        """Add the half-precision gradients of one micro-batch to the masters' and free them."""
        for name, weight in self.weights.items():
            master = self.masters[name]
            if master is weight or weight.grad is None:
                continue
            if master.grad is None:
                master.grad = weight.grad.float()
            else:
                master.grad += weight.grad
            weight.grad = None

    def sum_over(self, group: Group) -> None:
        """Sum gradients over processes. Where one has none, such as one without rows in this step, it adds nothing."""
        if group.size == 1:
            return
        import torch

        reached = group.sum([float(master.grad is not None) for master in self.masters.values()])
        grads = []
        for master, processes in zip(self.masters.values(), reached, strict=True):
            if processes:
                master.grad = torch.zeros_like(master) if master.grad is None else master.grad
                grads.append(master.grad)
        group.sum_tensors(grads)

    def without_gradient(self) -> tuple[str, ...]:
        """Names of trainable tensors that no loss reaches."""
        return tuple(name for name, master in self.masters.items() if master.grad is None)

    def finish(self, denominator: int, learning_rate: float) -> tuple[float, bool]:
        """Divide the summed gradients by the denominator, clip, and update.

        Returns:
            Gradient norm before clipping, and whether the update was applied (it is not when the norm is not finite).
        """
        import torch

        grads = [master.grad for master in self.masters.values() if master.grad is not None]
        if not grads or denominator == 0:
            self.clear()
            return 0.0, False
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))) / denominator
        finite = norm < float("inf")
        if finite:
            shrink = min(1.0, self.clip / (norm + 1e-6)) if self.clip else 1.0
            torch._foreach_mul_(grads, shrink / denominator)
            self._update(learning_rate)
        self.clear()
        return norm, finite

    def _update(self, learning_rate: float) -> None:
        import torch

        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.step()
        with torch.no_grad():
            for name, weight in self.weights.items():
                if self.masters[name] is not weight:
                    weight.copy_(self.masters[name])

    def clear(self) -> None:
        """Drop all gradients."""
        for name, weight in self.weights.items():
            weight.grad = None
            self.masters[name].grad = None

    def state(self) -> dict[str, Any]:
        """Masters and moments, by name and in order."""
        return {
            "weights": {name: master.detach() for name, master in self.masters.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`.

        Raises:
            GalleyError: `checkpoint-mismatch` when the trainable tensors are others.
        """
        import torch

        saved: Mapping[str, Tensor] = state["weights"]
        shapes = {name: tuple(master.shape) for name, master in self.masters.items()}
        if {name: tuple(tensor.shape) for name, tensor in saved.items()} != shapes:
            odd = sorted({*saved} ^ {*shapes}) or [n for n in shapes if tuple(saved[n].shape) != shapes[n]]
            raise GalleyError(
                "checkpoint-mismatch",
                f"the checkpoint's trainable tensors are not this model's; first difference: {odd[0]}",
                hint="resume with the recipe that the run was started with, or start a new run under another name",
            )
        with torch.no_grad():
            for name, master in self.masters.items():
                master.copy_(saved[name])
                if master is not self.weights[name]:
                    self.weights[name].copy_(master)
        for optimizer, moments in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(moments)


def _master(weight: nn.Parameter) -> Tensor:
    import torch

    if weight.dtype not in (torch.bfloat16, torch.float16):
        return weight
    return weight.detach().float().requires_grad_()


def embedding_names(module: nn.Module) -> frozenset[str]:
    """Parameters of embeddings and of the output head, which Muon leaves to AdamW (Jordan et al., 2024)."""
    from torch import nn

    owners = [name for name, child in module.named_modules() if isinstance(child, nn.Embedding)]
    names = {f"{owner}.weight" if owner else "weight" for owner in owners}
    return frozenset(names | {name for name, _ in module.named_parameters() if name.endswith("lm_head.weight")})


def build_optimizers(
    params: Mapping[str, Tensor], plan: OptimizerPlan, *, embeddings: frozenset[str]
) -> list[torch.optim.Optimizer]:
    """The torch optimisers for these tensors. Vectors and biases are not decayed.

    Args:
        params: float32 tensors by parameter name.
        plan: which optimiser, with its hyper-parameters; the learning rate is set anew before each step.
        embeddings: names that Muon does not orthogonalise.
    """
    import torch

    def groups(names: list[str]) -> list[dict[str, Any]]:
        decayed = [params[n] for n in names if params[n].ndim > 1]
        plain = [params[n] for n in names if params[n].ndim <= 1]
        both = ({"params": decayed, "weight_decay": plan.weight_decay}, {"params": plain, "weight_decay": 0.0})
        return [group for group in both if group["params"]]

    everything = list(params)
    rate, betas, epsilon = plan.learning_rate, plan.betas, plan.epsilon
    match plan.name:
        case "adamw":
            return [torch.optim.AdamW(groups(everything), lr=rate, betas=betas, eps=epsilon, fused=_can_fuse(params))]
        case "adamw-8bit":
            return [_adamw_8bit(groups(everything), rate, betas, epsilon)]
        case "adafactor":
            return [torch.optim.Adafactor(groups(everything), lr=rate)]
        case "sgd":
            return [torch.optim.SGD(groups(everything), lr=rate, momentum=betas[0])]
        case "muon":
            matrices = [n for n in everything if params[n].ndim == 2 and n not in embeddings]
            rest = [n for n in everything if n not in set(matrices)]
            found: list[torch.optim.Optimizer] = []
            if matrices:
                decay = plan.weight_decay
                chosen = [params[n] for n in matrices]
                # Updates are scaled to AdamW's size, so that one learning rate serves both (Liu et al., 2502.16982).
                found.append(torch.optim.Muon(chosen, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
            if rest:
                found.append(torch.optim.AdamW(groups(rest), lr=rate, betas=betas, eps=epsilon))
            return found


def _can_fuse(params: Mapping[str, Tensor]) -> bool:
    return all(tensor.device.type in ("cpu", "cuda") for tensor in params.values())


def _adamw_8bit(
    groups: list[dict[str, Any]], rate: float, betas: tuple[float, float], epsilon: float
) -> torch.optim.Optimizer:
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise GalleyError(
            "package-missing",
            "the optimiser adamw-8bit needs bitsandbytes",
            hint="pip install 'galley-train[quantized]', or leave optimizer.name out",
        ) from error
    optimizer: torch.optim.Optimizer = AdamW8bit(groups, lr=rate, betas=betas, eps=epsilon)
    return optimizer
