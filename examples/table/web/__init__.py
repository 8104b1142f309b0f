"""The players' screens: what a client of the live stream does when something was taken back (N5)."""
