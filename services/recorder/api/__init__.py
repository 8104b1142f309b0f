"""The recorder's HTTP doors: parse, use case, answer."""
