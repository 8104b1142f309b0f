"""The journal's pure parts."""
