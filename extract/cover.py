"""The cover: the set of kernels that computes a program's outputs at least total cost.

Best first over states (tensors still needed, by-products at hand), in reverse program order: the latest tensor that is
needed is made next. The bound is the dearest chain of kernels that is still to come, since two kernels of one chain are never
the same one (a kernel needs only what comes before all its outputs); or, of many outputs side by side, what each has to
bear of the kernel that makes it at the least price a tensor. Acyclic by construction.
"""
from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Callable, Iterable

from deplodock.ir.loop import Buffer
from extract.kernels import Candidate

PLANS = 4
"""Covers to keep: near ties are measured, not argued."""
STATES = 200_000
"""States to look at before the search stops and reports its gap: 2 s."""
EFFORT = 100_000
"""Choices to look at, and kernels of bounds, ten for one, before it stops as well: 2 s where each state has many choices."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Kernels in the order they run, and what they cost together. gap: the share of `total` by which a cheaper cover
    among the candidates may still undercut it; 0: there is none."""
    kernels: tuple[Candidate, ...]
    total: float
    gap: float = 0.0

    @property
    def optimal(self) -> bool:
        return self.gap == 0.0


def seconds(k: Candidate) -> float:
    """The objective of a plan: its time."""
    return k.seconds


def count(k: Candidate) -> float:
    """The objective that asks for fewest kernels, among those for the least time."""
    return 1.0 + k.seconds


def cover(targets: Iterable[Buffer], kernels: Iterable[Candidate], rank: dict[Buffer, int], plans: int = PLANS,
          objective: Callable[[Candidate], float] = seconds, states: int = STATES) -> list[Cover]:
    """The cheapest covers, best first; empty if the candidates do not cover the targets.

    targets: stored buffers to compute. rank: an order of stored buffers in which each kernel reads earlier ones than it
    writes. states: the search stops after that many and says what gap it leaves.
    """
    return _Cover(frozenset(targets), list(kernels), rank, objective).best(plans, states)


class _Cover:
    def __init__(self, targets: frozenset[Buffer], kernels: list[Candidate], rank: dict[Buffer, int], objective):
        self.targets, self.rank = targets, rank
        self.price = {id(k): objective(k) for k in kernels}
        self.makes: dict[Buffer, list[Candidate]] = defaultdict(list)
        for k in kernels:
            for b in k.names:
                self.makes[b].append(k)
        self.tensors = sorted(self.makes, key=rank.get)
        self.chains: dict[frozenset[Buffer], dict[Buffer, float]] = {}
        self.share = {b: min(self.price[id(k)] / len(k.names) for k in ks) for b, ks in self.makes.items()}
        self.effort = 0

    def bound(self, need: frozenset[Buffer], have: frozenset[Buffer]) -> float:
        """No cover of `need` costs less, if `have` comes for free."""
        chain = self.chains.get(have)
        if chain is None:
            chain = self.chains[have] = {}
            self.effort += sum(map(len, self.makes.values())) // 10
            for b in self.tensors:
                chain[b] = min(self.price[id(k)] + max((chain.get(u, math.inf) for u in k.need - have), default=0.0)
                               for k in self.makes[b])
        return max(max((chain.get(b, math.inf) for b in need), default=0.0), sum(self.share.get(b, math.inf) for b in need))

    def step(self, need: frozenset[Buffer], have: frozenset[Buffer], k: Candidate):
        """The state after choosing a kernel: what it reads is needed, what else it writes is at hand while it may be
        used.
        """
        rest = (need - k.names) | (k.need - have)
        top = max((self.rank[b] for b in rest), default=-1)
        spare = frozenset(b for b in (have | k.names) - k.need if self.rank[b] <= top) - rest
        return rest, spare

    def best(self, plans: int, states: int) -> list[Cover]:
        if not self.targets:
            return [Cover((), 0.0)]
        start = self.targets, frozenset()
        tie = itertools.count()
        heap = [(self.bound(*start), next(tie), 0.0, start, None)]
        left: dict[tuple, int] = defaultdict(int)
        found: list[Cover] = []
        known: set[frozenset[int]] = set()
        looked = 0
        while heap and len(found) < plans:
            low, _, total, state, path = heapq.heappop(heap)
            if low == math.inf:
                break
            if left[state] >= plans:
                continue
            left[state] += 1
            looked += 1
            need, have = state
            if not need:
                self._found(found, known, path, total, 0.0)
                continue
            self.effort += len(self.makes[max(need, key=self.rank.get)])
            if looked > states or self.effort > EFFORT:
                if not found:
                    self._dive(found, known, state, path, total, low)
                break
            for k in self.makes[max(need, key=self.rank.get)]:
                after = self.step(need, have, k)
                cost = total + self.price[id(k)]
                if left[after] < plans:
                    heapq.heappush(heap, (cost + self.bound(*after), next(tie), cost, after, (k, path)))
        return found

    def _found(self, found: list[Cover], known: set, path, total: float, gap: float) -> None:
        chosen = []
        while path is not None:
            chosen.append(path[0])
            path = path[1]
        key = frozenset(map(id, chosen))
        if key not in known:
            known.add(key)
            # not in the order of choice: the outputs of one kernel may straddle another kernel
            chosen.sort(key=lambda k: min(map(self.rank.get, k.names)))
            found.append(Cover(tuple(chosen), total, gap))

    def _dive(self, found: list[Cover], known: set, state, path, total: float, low: float) -> None:
        """Completes a state greedily, by the least bound."""
        while state[0]:
            options = [(self.price[id(k)] + self.bound(*self.step(*state, k)), k.key, k)
                       for k in self.makes[max(state[0], key=self.rank.get)]]
            _, _, k = min(options, key=lambda o: o[:2])
            total, path, state = total + self.price[id(k)], (k, path), self.step(*state, k)
        self._found(found, known, path, total, (total - low) / total)
