"""Pages of HTML: their tokens, what of them nobody sees, and the text that a person would read."""
