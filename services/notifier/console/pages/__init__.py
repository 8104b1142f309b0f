"""The pages, one noun a file: each gives its routes, asks the HTTP API and draws what it was told."""
