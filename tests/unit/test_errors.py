"""Words for whoever reads of an error."""

from takeback.errors import words_of


def test_an_error_without_words_is_told_by_what_it_is() -> None:
    """A message that ends in a colon and nothing tells a person nothing."""
    assert words_of(TimeoutError()) == "TimeoutError"
    assert words_of(OSError("no route")) == "no route"
