"""Speed, as shares of floors taken in the same run (`make bench`). Nothing here is asserted: machines differ."""
