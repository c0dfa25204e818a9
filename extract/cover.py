"""The cover: the set of kernels that computes a program's outputs at least total cost.

Best first over states (tensors still needed, by-products at hand), in reverse program order: the latest tensor that is
needed is made next. Acyclic by construction.

The bound is a sum of landmarks: sets of kernels of which every cover of certain tensors has at least one. The price of
a kernel is shared out among the landmarks that it is in, so what a state still needs costs at least their sum. They are
found as LM-cut does it (Helmert and Domshlak, "Landmarks, critical paths and abstractions", 2009): the dearest chain of
kernels is cut where least is to be paid, and that is taken off the prices, until all chains are free. A cover is a plan
without deletions, for which this is close to what it costs.
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
"""States to look at before the search stops and reports its gap."""
EFFORT = 200_000
"""Choices to look at before it stops as well: 2 s."""
WIDTH = 50
"""States that are completed together for the first covers, whose prices bound the others."""
LEAST = 1e-3
"""Share of the first chain's price below which nothing is cut any more."""


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


State = tuple[int, int]
"""(tensors needed, tensors at hand), as bits."""


@dataclass(frozen=True, slots=True)
class _Landmark:
    """Each tensor of the zone takes one of the kernels, at this price. Tensors are bits of an integer, kernels numbers.
    within: the zone if some tensors of it are at hand, by these."""
    price: float
    zone: int
    kernels: frozenset[int]
    within: dict[int, int]


class _Cover:
    """The search. Tensors are bits in the order of their ranks, kernels are numbers."""

    def __init__(self, targets: frozenset[Buffer], kernels: list[Candidate], rank: dict[Buffer, int], objective):
        self.rank = rank
        tensors = sorted({b for k in kernels for b in k.names}, key=rank.get)
        at = {b: i for i, b in enumerate(tensors)}
        by: dict[Buffer, list[Candidate]] = defaultdict(list)
        for k in kernels:
            for b in k.names:
                by[b].append(k)
        made: set[Buffer] = set()
        for b in tensors:
            if any(k.need <= made for k in by[b]):
                made.add(b)
        self.possible = targets <= made
        self.kernels = [k for k in kernels if k.need <= made]
        self.prices = [objective(k) for k in self.kernels]
        self.names = [sum(1 << at[b] for b in k.names) for k in self.kernels]
        self.need = [sum(1 << at[b] for b in k.need) for k in self.kernels]
        self.reads = [sorted(at[b] for b in k.need) for k in self.kernels]
        self.makes: list[list[int]] = [[] for _ in tensors]
        for i, k in enumerate(self.kernels):
            for b in k.names:
                self.makes[at[b]].append(i)
        self.start = sum(1 << at[b] for b in targets) if self.possible else 0, 0
        self.landmarks: list[_Landmark] = []
        self.taken = [0] * len(self.makes)
        """The landmarks of each tensor, as bits, and of sets of them."""
        self.masks: dict[int, int] = {0: 0}
        self.sums: dict[int, float] = {0: 0.0}
        self.effort = 0
        self.dived: list[tuple[float, frozenset[int]]] = []
        self.ceiling = math.inf
        """What none of the covers that are looked for costs more than."""

    # ---- the bound ---------------------------------------------------------------------------------------------------

    def bound(self, need: int, have: int) -> float:
        """No cover of `need` costs less, if `have` comes for free."""
        mask = self.mask(need)
        doubtful = mask & self.mask(have)
        while doubtful:
            bit = doubtful & -doubtful
            doubtful ^= bit
            l = self.landmarks[bit.bit_length() - 1]
            free = have & l.zone
            zone = l.within.get(free)
            if zone is None:
                zone = l.within[free] = self.zone(l.kernels, free)
            if not need & zone:
                mask ^= bit
        total = self.sums.get(mask)
        if total is None:
            total = self.sums[mask] = sum(l.price for i, l in enumerate(self.landmarks) if mask >> i & 1)
        return total

    def mask(self, tensors: int) -> int:
        """The landmarks of some tensors, as bits."""
        made = self.masks.get(tensors)
        if made is None:
            top = tensors.bit_length() - 1
            made = self.masks[tensors] = self.mask(tensors ^ 1 << top) | self.taken[top]
        return made

    def zone(self, cut: frozenset[int], have: int) -> int:
        """The tensors that take one of the kernels of a cut, if some are at hand."""
        free = have
        for b, ks in enumerate(self.makes):
            if any(k not in cut and not self.need[k] & ~free for k in ks):
                free |= 1 << b
        return ~free & (1 << len(self.makes)) - 1

    def find_landmarks(self) -> None:
        """Those of the targets, one cut after the other."""
        left, least = list(self.prices), 0.0
        goal = [b for b in range(len(self.makes)) if self.start[0] >> b & 1]
        while True:
            chain, dearest = self._chains(left)
            last = max(goal, key=chain.__getitem__)
            least = least or LEAST * chain[last]
            if chain[last] <= least:
                return
            cut = self._cut(last, left, dearest)
            price = min(left[k] for k in cut)
            for k in cut:
                left[k] = left[k] - price if left[k] - price > LEAST * least else 0.0
            zone = self.zone(cut, 0)
            for b in range(len(self.makes)):
                self.taken[b] |= (zone >> b & 1) << len(self.landmarks)
            self.landmarks.append(_Landmark(price, zone, cut, {}))

    def _chains(self, left: list[float]) -> tuple[list[float], list[int]]:
        """What the dearest chain to each tensor costs at least, and what each kernel reads at the end of the dearest;
        -1 where it reads nothing that is made."""
        chain, dearest = [math.inf] * len(self.makes), [-1] * len(left)
        for b, ks in enumerate(self.makes):
            best = math.inf
            for k in ks:
                most, at = 0.0, -1
                for u in self.reads[k]:
                    if chain[u] >= most:
                        most, at = chain[u], u
                dearest[k] = at
                if left[k] + most < best:
                    best = left[k] + most
            chain[b] = best
        return chain, dearest

    def _cut(self, last: int, left: list[float], dearest: list[int]) -> frozenset[int]:
        """The kernels at which chains enter what is free from there to a tensor."""
        zone, stack = {last}, [last]
        while stack:
            for k in self.makes[stack.pop()]:
                if left[k] == 0.0 and dearest[k] not in zone:
                    zone.add(dearest[k])
                    stack.append(dearest[k])
        reached, cut = {-1}, set()
        for b, ks in enumerate(self.makes):
            entering = [k for k in ks if dearest[k] in reached]
            if b in zone:
                cut.update(entering)
            elif entering:
                reached.add(b)
        return frozenset(cut)

    # ---- the search --------------------------------------------------------------------------------------------------

    def step(self, need: int, have: int, k: int) -> State:
        """The state after choosing a kernel: what it reads is needed, what else it writes is at hand while it may be
        used.
        """
        rest = need & ~self.names[k] | self.need[k] & ~have
        return rest, (have | self.names[k]) & ~self.need[k] & ~rest & (1 << rest.bit_length()) - 1

    def choices(self, state: State, total: float) -> list[tuple[float, float, int, State]]:
        """(what is still to be paid at least, price, kernel, state after it) for each kernel that makes the latest
        tensor needed, the least first. total: what has been paid so far, at least."""
        made = []
        for k in self.makes[state[0].bit_length() - 1]:
            after = self.step(*state, k)
            if total + (least := self.prices[k] + self.bound(*after)) <= self.ceiling:
                made.append((least, self.prices[k], k, after))
        made.sort()
        self.effort += len(self.makes[state[0].bit_length() - 1])
        return made

    def best(self, plans: int, states: int) -> list[Cover]:
        """A heap of choices: (bound of the covers that it leads to, -total before it, number, choices at hand, which of
        them, path). Its neighbour is added when it is taken."""
        if not self.possible:
            return []
        if not self.start[0]:
            return [Cover((), 0.0)]
        self.find_landmarks()
        self._dive(plans)
        tie = itertools.count()
        heap: list[tuple] = []
        among: dict[State, list] = {}
        left: dict[State, int] = defaultdict(int)
        found: dict[frozenset[int], Cover] = {}

        def take(total: float, state: State, path) -> None:
            if state not in among:
                among[state] = self.choices(state, total)
            if among[state]:
                heapq.heappush(heap, (total + among[state][0][0], -total, next(tie), among[state], 0, path))
        take(0.0, self.start, None)
        looked = 0
        while heap and len(found) < plans:
            low, before, _, choices, i, path = heapq.heappop(heap)
            if i + 1 < len(choices):
                heapq.heappush(heap, (choices[i + 1][0] - before, before, next(tie), choices, i + 1, path))
            _, price, k, state = choices[i]
            if left[state] >= plans:
                continue
            left[state] += 1
            looked += 1
            if not state[0]:
                chosen = _kernels((k, path))
                found.setdefault(chosen, self._cover(chosen, price - before, 0.0))
            elif looked > states or self.effort + looked > EFFORT:
                if not found:
                    total, chosen = self.dived[0]
                    return [self._cover(chosen, total, max(0.0, 1 - low / total))]
                break
            else:
                take(price - before, state, (k, path))
        return list(found.values())

    def _dive(self, plans: int) -> None:
        """Covers that are found by completing the states that promise most, a step of each at a time. None of the best
        costs more than they do."""
        beam: list[tuple[float, State, object]] = [(0.0, self.start, None)]
        done: dict[frozenset[int], float] = {}
        while beam:
            after: dict[State, tuple] = {}
            for total, state, path in beam:
                for least, price, k, to in self.choices(state, total):
                    if not to[0]:
                        done.setdefault(_kernels((k, path)), total + price)
                    elif total + price < after.get(to, (0.0, math.inf))[1]:
                        after[to] = total + least, total + price, (k, path)
            best = sorted(after.items(), key=lambda x: (x[1][0], x[0]))[:WIDTH]
            beam = [(total, state, path) for state, (_, total, path) in best]
            self.dived = sorted(((total, kernels) for kernels, total in done.items()), key=lambda x: x[0])[:plans]
            if len(self.dived) == plans:
                self.ceiling = self.dived[-1][0] * (1 + 1e-9)

    def _cover(self, chosen: frozenset[int], total: float, gap: float) -> Cover:
        # not in the order of choice: the outputs of one kernel may straddle another kernel
        kernels = sorted((self.kernels[k] for k in chosen), key=lambda k: min(map(self.rank.get, k.names)))
        return Cover(tuple(kernels), total, gap)


def _kernels(path) -> frozenset[int]:
    found = set()
    while path is not None:
        found.add(path[0])
        path = path[1]
    return frozenset(found)
