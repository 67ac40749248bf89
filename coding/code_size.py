"""How many tasks a group gets, and how many arrivals it takes to answer it."""

from __future__ import annotations

from dataclasses import dataclass

from coding.checks import require_integer


@dataclass(frozen=True, slots=True)
class CodeSize:
    """The numbers of a code that answers every slot at once.

    Attributes:
        k: queries in a group, K >= 1.
        n: tasks of a group, N >= K.
        wait_for: arrivals from which the group is answered, 1 to N. The stragglers tolerated are
            S = N - wait_for.
        floor: fewest arrivals to answer from once the deadline is there, 1 to `wait_for`.
        max_wrong: arrivals of a group that may be wrong and are found, E of the papers; 0 looks for none.
    """

    k: int
    n: int
    wait_for: int
    floor: int
    max_wrong: int = 0

    @classmethod
    def checked(cls, k: int, n: int, wait_for: int, floor: int | None, max_wrong: int = 0) -> CodeSize:
        """The size with these numbers.

        A floor of None means ceil(K / 2), or `wait_for` where that is less. From there down most answers are
        wrong: LeNet5 on MNIST at (8, 12) has accuracy .91 from 10 arrivals, .83 from 8, .71 from 6, .55 from
        4 and .36 from 2, over random arrivals.

        Of the `wait_for` arrivals two must be to spare for each wrong one, K + 2 E <= wait_for: no code with K
        unknowns tells from fewer which E are wrong (the Singleton bound). ApproxIFER's locator needs K - 1 more.

        Raises:
            BadParameter: a number is out of range.
        """
        require_integer("k", k, 1)
        require_integer("n", n, k, low_name="k")
        require_integer("wait_for", wait_for, 1, n, high_name="n")
        spare = max(0, (wait_for - k) // 2)
        require_integer("max_wrong", max_wrong, 0, spare, high_name="(wait_for - k) / 2")
        if floor is None:
            return cls(k, n, wait_for, min(-(-k // 2), wait_for), max_wrong)
        require_integer("floor", floor, 1, wait_for, high_name="wait_for")
        return cls(k, n, wait_for, floor, max_wrong)

    def for_rows(self, rows: int) -> CodeSize:
        """The size for a group of only `rows` queries.

        It keeps the redundancy N - K and the straggler tolerance N - wait_for, and finds as many wrong arrivals.
        The floor shrinks in proportion. One row alone needs one arrival, since every payload is the row itself,
        and two more for each that may be wrong: the right ones then have the majority.

        Raises:
            BadParameter: rows is not between 1 and K.
        """
        require_integer("rows", rows, 1, self.k, high_name="k")
        missing = self.k - rows
        if rows == 1:
            return CodeSize(1, self.n - missing, 1 + 2 * self.max_wrong, 1, self.max_wrong)
        wait_for = max(1, self.wait_for - missing)
        floor = min(-(-self.floor * rows // self.k), wait_for)
        return CodeSize(rows, self.n - missing, wait_for, floor, self.max_wrong)
