"""A straight line through points, from running sums."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Line:
    """Least squares of y over x.

    Attributes:
        count: points so far.
        x, y, xx, xy: sums.
    """

    count: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        self.count += 1
        self.x, self.y = self.x + x, self.y + y
        self.xx, self.xy = self.xx + x * x, self.xy + x * y

    @property
    def spread(self) -> float:
        """Sum of squares of x about its mean."""
        return self.xx - self.x * self.x / self.count if self.count else 0.0

    @property
    def joint(self) -> float:
        """Sum of products of x and y about their means."""
        return self.xy - self.x * self.y / self.count if self.count else 0.0

    @property
    def slope(self) -> float:
        """0 where x does not vary."""
        return self.joint / self.spread if self.spread > 0 else 0.0
