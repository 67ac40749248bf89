"""What can go wrong in coding, as a tree.

CodingError
|-- BadParameter     a parameter breaks a rule; the message names parameter, rule and value
|-- BadShape         an array does not have the shape that the scheme needs
`-- NotDecodable     these arrivals cannot answer anything
"""


class CodingError(Exception):
    """Base of every error that `coding` raises on purpose."""


class BadParameter(CodingError, ValueError):
    """A scheme parameter breaks a rule."""


class BadShape(CodingError, ValueError):
    """An array does not have the shape that the scheme needs."""


class NotDecodable(CodingError):
    """The arrivals cannot answer any slot."""
