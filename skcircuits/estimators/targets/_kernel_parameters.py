"""Parameters of a kernel object as parameters of the estimator that holds it."""

from skcircuits.exceptions import must
from skcircuits.kernels.families.base import KernelFamily


class KernelParametersMixin:
    """Set parameters such as ``kernel__gamma``, so that searches can choose them.

    Kernels are immutable: another kernel takes the place of the old one.
    """

    def set_params(self, **params):
        """Set parameters of the estimator, and of estimators and kernels inside it."""
        of_kernel = {name for name in params if name.startswith("kernel__")}
        # The kernel itself first: the others may be meant for a new one
        super().set_params(**{name: params[name] for name in params if name not in of_kernel})
        if not of_kernel:
            return self
        if not isinstance(self.kernel, KernelFamily):
            raise ValueError(
                must(
                    "kernel",
                    f"be a single kernel object to set {sorted(of_kernel)}",
                    "Set kernel itself.",
                    kernel=self.kernel,
                )
            )
        self.kernel = self.kernel.with_params(
            **{name.removeprefix("kernel__"): params[name] for name in of_kernel}
        )
        return self
