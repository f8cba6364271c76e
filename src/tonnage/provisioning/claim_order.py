"""The order in which planned NodeClaims are tried for a pod: by how many pods they have, fewest first.

Karpenter sorts its list before every pod with Go's ``sort.Slice``, which is not stable: which of two NodeClaims with
equally many pods comes first follows from Go's algorithm, pattern-defeating quicksort (Orson Peters, arXiv 2106.05123).
:func:`sort` takes the same steps. A list in which just one NodeClaim has moved is put in order without them wherever
they would come to the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

_SHORT = 12
"""Up to this length insertion sort does all the work."""
_LONG = 50
"""From this length on the pivot is chosen among nine elements, and one stray element is put right by itself."""
_STEPS = 5
_MASK = (1 << 64) - 1


class ClaimOrder:
    """Numbers of NodeClaims in the order in which they are tried, the first one 0."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self._pods: list[int] = []
        self._stray: int | None = None

    @classmethod
    def of(cls, pods: Sequence[int]) -> ClaimOrder:
        """NodeClaims with this many pods each, of equally many the first by number first."""
        made = cls()
        made.order = sorted(range(len(pods)), key=lambda number: (pods[number], number))
        made._pods = [pods[number] for number in made.order]
        return made

    def append(self) -> int:
        """A new NodeClaim with one pod, at the end. Its number."""
        number = len(self.order)
        if self._pods and self._pods[-1] > 1:
            self._stray = number
        self.order.append(number)
        self._pods.append(1)
        return number

    def took(self, place: int) -> None:
        """The NodeClaim at this place of the order took a pod."""
        self._pods[place] += 1
        if place + 1 < len(self.order) and self._pods[place + 1] < self._pods[place]:
            self._stray = place

    def settle(self) -> Sequence[int]:
        """Put in order: to be called before every pod, so that at most one NodeClaim has moved."""
        stray, self._stray = self._stray, None
        if stray is None:
            return self.order
        sorter = _Sorter(self.order, self._pods)
        length = len(self.order)
        if length <= _SHORT or (length >= _LONG and sorter.looks_sorted()):
            pods = self._pods[stray]
            number = self.order.pop(stray)
            del self._pods[stray]
            to = bisect_right(self._pods, pods) if stray == length - 1 else bisect_left(self._pods, pods, stray)
            self.order.insert(to, number)
            self._pods.insert(to, pods)
        else:
            sort(self.order, self._pods)
        return self.order


def sort(items: list[int], keys: list[int]) -> None:
    """Sort both lists in place by ``keys``, equal keys in the order in which Go's sort.Slice leaves them."""
    _Sorter(items, keys).sort(0, len(items), len(items).bit_length())


class _Sorter:
    def __init__(self, items: list[int], keys: list[int]) -> None:
        self.items, self.keys = items, keys

    def swap(self, i: int, j: int) -> None:
        items, keys = self.items, self.keys
        items[i], items[j] = items[j], items[i]
        keys[i], keys[j] = keys[j], keys[i]

    def looks_sorted(self) -> bool:
        """Whether the sample among which a pivot is chosen is in order."""
        return self._pivot(0, len(self.keys))[1]

    def sort(self, low: int, high: int, bad_pivots: int) -> None:
        """``bad_pivots``: how many unbalanced partitions are put up with before heap sort takes over."""
        keys = self.keys
        balanced = partitioned = True
        while True:
            length = high - low
            if length <= _SHORT:
                self._insert(low, high)
                return
            if not bad_pivots:
                self._heap(low, high)
                return
            if not balanced:
                self._scatter(low, high)
                bad_pivots -= 1
            pivot, rising, falling = self._pivot(low, high)
            if falling:
                items = self.items
                items[low:high] = items[low:high][::-1]
                keys[low:high] = keys[low:high][::-1]
                pivot, rising = (high - 1) - (pivot - low), True
            if balanced and partitioned and rising and self._nearly(low, high):
                return
            if low > 0 and not keys[low - 1] < keys[pivot]:
                low = self._equals(low, high, pivot)
                continue
            middle, partitioned = self._partition(low, high, pivot)
            left, right = middle - low, high - middle
            balanced = min(left, right) >= length // 8
            if left < right:
                self.sort(low, middle, bad_pivots)
                low = middle + 1
            else:
                self.sort(middle + 1, high, bad_pivots)
                high = middle

    def _insert(self, low: int, high: int) -> None:
        """Insertion sort: each element moves behind those before it that are not greater."""
        items, keys = self.items, self.keys
        for at in range(low + 1, high):
            key = keys[at]
            if key < keys[at - 1]:
                to = bisect_right(keys, key, low, at)
                items.insert(to, items.pop(at))
                keys.insert(to, keys.pop(at))

    def _nearly(self, low: int, high: int) -> bool:
        """Whether the part is in order, perhaps after a few strays have been moved."""
        keys = self.keys
        at = low + 1
        for _ in range(_STEPS):
            while at < high and keys[at] >= keys[at - 1]:
                at += 1
            if at == high:
                return True
            if high - low < _LONG:
                return False
            self.swap(at, at - 1)
            if at - low >= 2:
                self._leftwards(at - 1)
            if high - at >= 2:
                self._rightwards(at, high)
        return False

    def _leftwards(self, at: int) -> None:
        items, keys = self.items, self.keys
        to = at
        while to >= 1 and keys[to - 1] > keys[at]:
            to -= 1
        items.insert(to, items.pop(at))
        keys.insert(to, keys.pop(at))

    def _rightwards(self, at: int, high: int) -> None:
        items, keys = self.items, self.keys
        to = at
        while to + 1 < high and keys[to + 1] < keys[at]:
            to += 1
        items.insert(to, items.pop(at))
        keys.insert(to, keys.pop(at))

    def _partition(self, low: int, high: int, pivot: int) -> tuple[int, bool]:
        """Lesser elements to the left of the pivot. Where the pivot is now, and whether nothing had to move."""
        keys = self.keys
        self.swap(low, pivot)
        key = keys[low]
        left, right = low + 1, high - 1
        moved = False
        while True:
            while left <= right and keys[left] < key:
                left += 1
            while left <= right and keys[right] >= key:
                right -= 1
            if left > right:
                break
            self.swap(left, right)
            moved = True
            left += 1
            right -= 1
        self.swap(right, low)
        return right, not moved

    def _equals(self, low: int, high: int, pivot: int) -> int:
        """Elements that equal the pivot to the left of the greater ones. Where the greater ones begin."""
        keys = self.keys
        self.swap(low, pivot)
        key = keys[low]
        left, right = low + 1, high - 1
        while True:
            while left <= right and keys[left] <= key:
                left += 1
            while left <= right and keys[right] > key:
                right -= 1
            if left > right:
                return left
            self.swap(left, right)
            left += 1
            right -= 1

    def _pivot(self, low: int, high: int) -> tuple[int, bool, bool]:
        """Where the pivot is, and whether the sample looks to rise or to fall all along."""
        length = high - low
        quarters = [low + length // 4 * part for part in (1, 2, 3)]
        swaps = 0
        if length >= _LONG:
            for n, at in enumerate(quarters):
                quarters[n], more = self._median(at - 1, at, at + 1)
                swaps += more
        chosen, more = self._median(*quarters)
        swaps += more
        return chosen, swaps == 0, swaps == 12

    def _median(self, a: int, b: int, c: int) -> tuple[int, int]:
        """Which of three places has the middle element, and how many exchanges it took to see that."""
        keys, swaps = self.keys, 0
        if keys[b] < keys[a]:
            a, b, swaps = b, a, swaps + 1
        if keys[c] < keys[b]:
            b, c, swaps = c, b, swaps + 1
        if keys[b] < keys[a]:
            a, b, swaps = b, a, swaps + 1
        return b, swaps

    def _scatter(self, low: int, high: int) -> None:
        """Exchange three elements in the middle with others drawn by a fixed generator."""
        length = high - low
        state, modulus = length, 1 << length.bit_length()
        middle = low + length // 4 * 2
        for at in (middle - 1, middle, middle + 1):
            state ^= (state << 13) & _MASK
            state ^= state >> 7
            state ^= (state << 17) & _MASK
            other = state & (modulus - 1)
            self.swap(at, low + (other - length if other >= length else other))

    def _heap(self, low: int, high: int) -> None:
        length = high - low
        for root in range((length - 1) // 2, -1, -1):
            self._sift(root, length, low)
        for end in range(length - 1, -1, -1):
            self.swap(low, low + end)
            self._sift(0, end, low)

    def _sift(self, root: int, end: int, low: int) -> None:
        keys = self.keys
        while (child := 2 * root + 1) < end:
            if child + 1 < end and keys[low + child] < keys[low + child + 1]:
                child += 1
            if keys[low + root] >= keys[low + child]:
                return
            self.swap(low + root, low + child)
            root = child
