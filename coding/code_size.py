"""How many tasks a group gets, and how many arrivals it takes to answer it."""

from __future__ import annotations

from dataclasses import dataclass

from coding.checks import require_integer


@dataclass(frozen=True, slots=True)
class CodeSize:
    """The four numbers of a code that answers every slot at once.

    Attributes:
        k: queries in a group, K >= 1.
        n: tasks of a group, N >= K.
        wait_for: arrivals from which the group is answered, 1 to N. The stragglers tolerated are
            S = N - wait_for.
        floor: fewest arrivals to answer from once the deadline is there, 1 to `wait_for`.
    """

    k: int
    n: int
    wait_for: int
    floor: int

    @classmethod
    def checked(cls, k: int, n: int, wait_for: int, floor: int | None) -> CodeSize:
        """The size with these numbers.

        A floor of None means ceil(K / 2), or `wait_for` where that is less. From there down most answers are
        wrong: LeNet5 on MNIST at (8, 12) has accuracy .91 from 10 arrivals, .83 from 8, .71 from 6, .55 from
        4 and .36 from 2, over random arrivals.

        Raises:
            BadParameter: a number is out of range.
        """
        require_integer("k", k, 1)
        require_integer("n", n, k, low_name="k")
        require_integer("wait_for", wait_for, 1, n, high_name="n")
        if floor is None:
            return cls(k, n, wait_for, min(-(-k // 2), wait_for))
        require_integer("floor", floor, 1, wait_for, high_name="wait_for")
        return cls(k, n, wait_for, floor)

    def for_rows(self, rows: int) -> CodeSize:
        """The size for a group of only `rows` queries.

        It keeps the redundancy N - K and the straggler tolerance N - wait_for. The floor shrinks in
        proportion. One row alone needs one arrival, since every payload is the row itself.

        Raises:
            BadParameter: rows is not between 1 and K.
        """
        require_integer("rows", rows, 1, self.k, high_name="k")
        missing = self.k - rows
        wait_for = 1 if rows == 1 else max(1, self.wait_for - missing)
        floor = min(-(-self.floor * rows // self.k), wait_for)
        return CodeSize(rows, self.n - missing, wait_for, floor)
