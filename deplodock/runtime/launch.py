"""Kernels on a GPU, through cuda.core: loading, tensor maps, launches on torch's current stream, CUDA graphs.

A program's buffers stand in one tuple, and a kernel knows the places of its own. A set of addresses that comes back is
replayed as a CUDA graph; one that is new is launched kernel by kernel, which costs less than making a graph or updating
one, and torch's allocator hands out the same few addresses again and again.
"""
from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import torch

from deplodock.errors import LaunchFailed, NoGpu, OtherGpu
from deplodock.ir.cuda import CudaKernel, Map
from deplodock.ir.dtype import Dtype
from deplodock.runtime.compile import Cubin

GRAPHS = 8
"""Graphs kept per program, each for one set of addresses: a few megabytes of device memory at most."""
MAPS = 8
"""Tensor maps kept per argument of a kernel, each for one address of its buffer: 128 bytes and a Python object. What a
program holds has one address, its intermediates one per stream, inputs and outputs those that the allocator hands out."""
GRAPH_FROM = 2
"""Kernels from which on a graph pays: replaying a graph costs about as much as two plain launches."""


def require_gpu(index: int = 0, arch: str | None = None) -> None:
    """NoGpu if a GPU cannot be used, OtherGpu if it does not run code for an architecture."""
    try:
        if not torch.cuda.is_available():
            reason = "this build of PyTorch has no CUDA" if torch.version.cuda is None else "no GPU, or no working driver"
            raise NoGpu(reason=f"torch.cuda.is_available() is False: {reason}")
        capability = torch.cuda.get_device_capability(index)
    except (RuntimeError, AssertionError) as error:
        raise NoGpu(reason=str(error).splitlines()[0]) from error
    if capability < (8, 0):
        raise NoGpu(reason=_described(index, capability))
    if arch is not None and not runs_on(arch, capability):
        raise OtherGpu(arch=arch, gpu=_described(index, capability))


def _described(index: int, capability: tuple[int, int]) -> str:
    return f"{torch.cuda.get_device_name(index)} has compute capability {capability[0]}.{capability[1]}"


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a cubin of an architecture (sm_80, sm_90a) runs on a GPU: the same major version and no newer minor one;
    code with the suffix `a` only on exactly that capability."""
    digits = arch.removeprefix("sm_").rstrip("af")
    major, minor = int(digits[:-1]), int(digits[-1])
    return (major, minor) == capability if arch.endswith("a") else major == capability[0] and minor <= capability[1]


class Gpu:
    """One GPU as cuda.core sees it, for code of an architecture; its context is torch's. NoGpu, OtherGpu."""

    def __init__(self, index: int, arch: str):
        require_gpu(index, arch)
        from cuda.core import Device
        torch.cuda.init()
        self.index, self.device = index, Device(index)
        self.device.set_current()
        self._streams: dict[int, object] = {}
        self._functions: dict[bytes, object] = {}

    def stream(self):
        """torch's current stream."""
        handle = torch.cuda.current_stream(self.index).cuda_stream
        if handle not in self._streams:
            from cuda.core import Stream
            self._streams[handle] = Stream.from_handle(handle)
        return self._streams[handle]

    def load(self, kernel: CudaKernel, cubin: Cubin, places: dict[str, int]) -> Loaded:
        """A kernel whose buffers stand at `places` of a program's addresses. LaunchFailed if the driver refuses it."""
        from cuda.core import LaunchConfig
        config = LaunchConfig(grid=kernel.grid, block=kernel.threads, shmem_size=kernel.shared)
        return Loaded(kernel.name, self._function(kernel, cubin), config, tuple(places[p.name] for p in kernel.params),
                      tuple((m, places[m.buffer]) for m in kernel.maps))

    def _function(self, kernel: CudaKernel, cubin: Cubin):
        """A kernel's code in the GPU's memory: once, however often the kernel comes again with other buffers."""
        if cubin.code in self._functions:
            return self._functions[cubin.code]
        from cuda.bindings import driver
        from cuda.core import ObjectCode
        try:
            function = ObjectCode.from_cubin(cubin.code, name=kernel.name).get_kernel(kernel.name)
        except Exception as error:
            raise LaunchFailed(name=kernel.name, reason=str(error)) from error
        if kernel.shared > 48 * 1024:        # what a kernel may ask for without saying so before; cuda.core only reads it
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (error,) = driver.cuKernelSetAttribute(attribute, kernel.shared, function.handle, driver.CUdevice(self.index))
            if error != driver.CUresult.CUDA_SUCCESS:
                raise LaunchFailed(name=kernel.name, reason=f"{kernel.shared} bytes of shared memory: {error.name}")
        self._functions[cubin.code] = function
        return function


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel in a GPU's memory. Arguments are the addresses at `pointers`, then tensor maps over those at `maps`."""
    name: str
    function: object
    config: object
    pointers: tuple[int, ...]
    maps: tuple[tuple[Map, int], ...]


class Sequence:
    """Kernels that run one after the other on one GPU."""

    def __init__(self, gpu: Gpu, kernels: tuple[Loaded, ...]):
        self.gpu, self.kernels = gpu, kernels
        self._maps = {argument: OrderedDict() for k in kernels for argument in k.maps}
        self._graphs: OrderedDict[tuple[int, ...], object] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Enqueues all kernels on torch's current stream. LaunchFailed with the kernel's name if one is refused."""
        stream, addresses = self.gpu.stream(), tuple(t.data_ptr() for t in tensors)
        with self._lock:
            if len(self.kernels) < GRAPH_FROM or torch.cuda.is_current_stream_capturing():
                self._launch(stream, addresses)
                return
            if addresses not in self._graphs:
                self._remember(self._graphs, addresses, None, GRAPHS)
                self._launch(stream, addresses)
                return
            self._graphs.move_to_end(addresses)
            try:
                if self._graphs[addresses] is None:
                    self._graphs[addresses] = self._graph(addresses)
                self._graphs[addresses].launch(stream)
            except Exception as error:
                raise LaunchFailed(name=" ".join(k.name for k in self.kernels), reason=str(error)) from error

    def _launch(self, stream, addresses: tuple[int, ...]) -> None:
        from cuda.core import launch
        for kernel in self.kernels:
            try:
                launch(stream, kernel.config, kernel.function, *self._arguments(kernel, addresses))
            except Exception as error:
                raise LaunchFailed(name=kernel.name, reason=str(error)) from error

    def _graph(self, addresses: tuple[int, ...]):
        from cuda.core.graph import GraphDefinition
        graph = node = GraphDefinition()
        for kernel in self.kernels:
            node = node.launch(kernel.config, kernel.function, *self._arguments(kernel, addresses))
        return graph.instantiate()

    def _arguments(self, kernel: Loaded, addresses: tuple[int, ...]) -> list:
        return [addresses[i] for i in kernel.pointers] + [self._map(m, i, addresses[i]) for m, i in kernel.maps]

    def _map(self, m: Map, place: int, address: int):
        """The tensor map of the buffer in a place; it embeds the address, so a moved buffer gets another."""
        made = self._maps[m, place]
        if address not in made:
            self._remember(made, address, tensor_map(m, address, self.gpu.index), MAPS)
        made.move_to_end(address)
        return made[address]

    @staticmethod
    def _remember(table: OrderedDict, key, value, most: int) -> None:
        table[key] = value
        if len(table) > most:
            table.popitem(last=False)


def tensor_map(m: Map, address: int, device: int):
    """A descriptor for bulk copies of boxes of a buffer. Sizes are slowest first, strides in bytes."""
    from cuda.core import _tensor_map as tma
    from cuda.core.utils import StridedMemoryView
    kinds = {Dtype.bf16: tma.TensorMapDataType.BFLOAT16, Dtype.f16: tma.TensorMapDataType.FLOAT16,
             Dtype.f32: tma.TensorMapDataType.FLOAT32, Dtype.f64: tma.TensorMapDataType.FLOAT64,
             Dtype.i32: tma.TensorMapDataType.INT32, Dtype.i64: tma.TensorMapDataType.INT64,
             Dtype.u64: tma.TensorMapDataType.UINT64, Dtype.u32: tma.TensorMapDataType.UINT32,
             Dtype.u16: tma.TensorMapDataType.UINT16, Dtype.u8: tma.TensorMapDataType.UINT8}
    swizzles = {0: tma.TensorMapSwizzle.NONE, 32: tma.TensorMapSwizzle.SWIZZLE_32B, 64: tma.TensorMapSwizzle.SWIZZLE_64B,
                128: tma.TensorMapSwizzle.SWIZZLE_128B}
    view = StridedMemoryView.from_any_interface(_Memory(m, address), stream_ptr=-1)
    return view.as_tensor_map(box_dim=m.box, data_type=kinds[m.dtype], swizzle=swizzles[m.swizzle],
                              l2_promotion=tma.TensorMapL2Promotion.L2_256B)


class _Memory:
    """Device memory as __cuda_array_interface__ describes it. 16-bit floats pass as integers of their width, because
    the interface has no name for bf16; the map's data type is given apart."""

    def __init__(self, m: Map, address: int):
        size = m.dtype.bytes
        self.__cuda_array_interface__ = {
            "version": 3, "shape": m.dims, "strides": (*m.strides, size), "data": (address, False),
            "typestr": {1: "|u1", 2: "<i2", 4: "<f4", 8: "<f8"}[size], "stream": None}
