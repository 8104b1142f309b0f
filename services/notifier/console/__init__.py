"""The console: pages in the browser for people who would rather look than read (U1, U2, U3).

Everything that a page shows or does goes through the same HTTP API, with the signed-in person's own token: `speaker.py`.
A page is no way around an authority.
"""
