"""What there is to compute with: the version of torch, and whether it finds a CUDA device."""

import torch


def present() -> tuple[str, bool]:
    """Version and whether there is CUDA."""
    return torch.__version__, torch.cuda.is_available()
