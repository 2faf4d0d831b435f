"""Let the C library keep the memory that tensors give back.

By default glibc returns large blocks to the kernel, and the next tensor of that size pays for each of its
pages again: one step of the optimiser on the small network took four times as long.
"""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
_LARGEST_MMAP_THRESHOLD = 32 << 20  # bytes; glibc takes no more


def keep_freed_memory() -> None:
    """For this process, from now on; does nothing where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, _LARGEST_MMAP_THRESHOLD // 2)
