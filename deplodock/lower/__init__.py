"""From extracted kernels to CUDA text, one step down a file: flatten, structure, tile, kernel, cuda."""
